"""The SageMaker calls about models, endpoint configurations and endpoints, and InvokeEndpoint."""
