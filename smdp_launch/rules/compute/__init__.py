"""Rules about instances, framework, image and cost."""
