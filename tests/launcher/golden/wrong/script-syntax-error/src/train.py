import model

print(model.LAYERS)
