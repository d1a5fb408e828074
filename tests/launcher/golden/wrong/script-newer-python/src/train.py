def choose(name):
    try:
        return name
    except* ValueError:
        return None
