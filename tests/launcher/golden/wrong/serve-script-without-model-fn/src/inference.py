def load_model(model_dir):
    return model_dir
