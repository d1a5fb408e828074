print("epoch")
