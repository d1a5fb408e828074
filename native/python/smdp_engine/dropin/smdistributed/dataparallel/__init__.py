"""Import paths of SageMaker's data parallel library, served by smdp-engine."""
