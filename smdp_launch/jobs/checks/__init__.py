"""What AWS would find wrong with a launch, asked before anything is uploaded. `check` is the door."""
