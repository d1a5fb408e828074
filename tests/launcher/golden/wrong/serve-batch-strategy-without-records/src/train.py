import os

open(os.environ["SM_MODEL_DIR"] + "/model", "w").close()
