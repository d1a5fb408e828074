"""What AWS would find wrong with a launch, checked before anything is uploaded."""
