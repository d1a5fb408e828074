"""The import paths of SageMaker's data parallel library, implemented by smdp-engine."""
