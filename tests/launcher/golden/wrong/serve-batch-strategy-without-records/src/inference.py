def model_fn(model_dir):
    return model_dir
