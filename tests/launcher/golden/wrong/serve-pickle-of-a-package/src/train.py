import os

import joblib
import lightgbm

model = lightgbm.LGBMClassifier().fit([[0.0], [1.0]], [0, 1])
joblib.dump(model, os.path.join(os.environ["SM_MODEL_DIR"], "model.joblib"))
