def load():
    return []
