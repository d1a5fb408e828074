# `make demo` and `make test` do all set-up themselves; `make help` lists the rest.
PYTHON ?= python3
# A plain `torch` may bring gigabytes of CUDA packages. Set TORCH to what suits your machine.
TORCH ?= torch==2.13.0
# The TensorFlow of `make test-tensorflow` and `make demo-tf`.
TENSORFLOW ?= tensorflow-cpu==2.14.1
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
NATIVE := $(shell find native -type f -not -path 'native/build/*' -not -path 'native/fuzz/*' -not -name '*.pyc')
CXX_FILES := $(shell find native -type f \( -name '*.cc' -o -name '*.h' \) -not -path 'native/build/*')
# The Python whose torch or TensorFlow `make wheels` builds the engine for.
WHEELS_PYTHON ?= $(BIN)/python
# Which tests stand in a tier of their own, which needs more than $(VENV) or hours. Of the others, `make test-runs` runs those
# that `make test` has no time for.
ELSEWHERE := soak or clients or images or programs or tensorflow or launchers or release
FAST := not ($(ELSEWHERE) or runs)
# Tests start thousands of Pythons; without their compiled modules each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
# Whole files to each process, the longest first (conftest.py): a file's tests share a local cloud. Two processes for each
# core, since many tests wait.
PARALLEL := -n $$(($$(getconf _NPROCESSORS_ONLN) * 2)) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# The same for tests that compute for minutes and have a time limit: one process for each core.
ONE_PER_CORE := -n $$(getconf _NPROCESSORS_ONLN) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# $(call marked,MARK): the files with such tests. pytest would import all others too.
marked = $(shell grep -rl 'mark\.$(1)\b' --include='test_*.py' native/tests tests containers/entrypoint/tests)

.PHONY: help setup demo wheels release test lint format bench docs clean \
        demo-tf fuzz test-runs test-planted test-sanitizers test-native test-fabric test-fabric-torch test-fabric-faults test-containers test-clients test-clients-large test-release test-conformance test-programs test-launchers test-tensorflow test-gpu \
        test-soak matrix
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 26

setup: $(VENV)/.ready ## .venv with the product and all that its tests need

$(VENV)/.ready: pyproject.toml containers/entrypoint/pyproject.toml tools/check_machine.sh tools/install_packages.sh $(NATIVE)
	@sh tools/check_machine.sh $(PYTHON)
	PYTHON=$(PYTHON) sh tools/install_packages.sh $(VENV) '$(TORCH)' numpy -e containers/entrypoint -e '.[local-cloud,dev]' \
		'scikit-build-core>=0.11,<2' 'ninja>=1.11'
	# Without isolation: the torch backend is built against the torch that is installed here.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps --no-build-isolation ./native
	@touch $@

data/mnist/train/images.idx3: $(VENV)/.ready templates/scripts/prepare_mnist.py
	$(BIN)/python templates/scripts/prepare_mnist.py data/mnist

demo: $(VENV)/.ready data/mnist/train/images.idx3 ## check, plan and train a model here: 2 hosts x 2 workers
	$(BIN)/smdp-launch validate templates/jobs/mnist.yaml
	$(BIN)/smdp-launch plan templates/jobs/mnist.yaml
	$(BIN)/smdp-launch launch templates/jobs/mnist.yaml --local --hosts 2 --workers-per-host 2

test: $(VENV)/.ready ## the fast tests and a slice of every tier
	$(PYTEST) -q -m '$(FAST)' $(PARALLEL)

test-runs: $(VENV)/.ready ## whole tier: local jobs and ranks, the cases that `make test` leaves out
	$(PYTEST) -q -m 'runs and not ($(ELSEWHERE))' $(PARALLEL)

test-sanitizers: $(VENV)/.ready ## the engine's C++ tests, and under AddressSanitizer, UBSan and ThreadSanitizer
	@test -e /usr/include/gtest/gtest.h || { echo "missing: GoogleTest (Debian, Ubuntu: apt-get install libgtest-dev)" >&2; exit 1; }
	PATH="$(CURDIR)/$(BIN):$$PATH" sh native/tests/run.sh release asan tsan

test-native: test-sanitizers ## whole tier: the engine's C++ tests under sanitizers, and its Python tests
	$(PYTEST) -q -m 'not (soak or tensorflow)' native/tests

# What the C++ tests run over; the Python tests start processes and use tcp;ofi_rxm.
FABRICS ?= strict strict/3 efa sockets 'tcp;ofi_rxm'

test-fabric: $(VENV)/.ready ## whole tier: the engine's tests over fabrics of libfabric instead of TCP
	@ldconfig -p | grep -q libfabric.so.1 || { echo "missing: libfabric (Debian, Ubuntu: apt-get install libfabric1)" >&2; exit 1; }
	PATH="$(CURDIR)/$(BIN):$$PATH" sh native/tests/fabric/run.sh $(FABRICS)
	SMDP_TRANSPORT=ofi FI_PROVIDER='tcp;ofi_rxm' $(PYTEST) -q $(ONE_PER_CORE) native/tests/torch/test_torch_backend.py native/tests/torch/test_lifecycle.py

test-fabric-torch: $(VENV)/.ready ## whole tier: PyTorch's own distributed suite over a fabric of libfabric
	SMDP_TRANSPORT=ofi FI_PROVIDER='tcp;ofi_rxm' $(BIN)/python native/conformance/run.py --deadline 120 $(CONFORMANCE)

# --time-factor 10: for a busy machine. --jobs 1: one job at a time.
FAULTS ?=

test-fabric-faults: $(VENV)/.ready ## whole tier: 200 faults in real jobs over a fabric of libfabric (root)
	SMDP_TRANSPORT=ofi FI_PROVIDER='tcp;ofi_rxm' $(BIN)/python native/tests/support/inject_faults.py --faults 200 --seed 20261128 \
		--layouts 2x2,3+1 --kinds kill,link,cut,mute,close,pause,slow $(FAULTS)

test-planted: $(VENV)/.ready ## bugs planted in the engine, one at a time: the simulated jobs find each
	PATH="$(CURDIR)/$(BIN):$$PATH" python native/tests/mutants.py

FUZZ_SECONDS ?= 60

fuzz: $(VENV)/.ready ## fuzz the frame parser, the hello and the rendezvous for FUZZ_SECONDS each (clang with libFuzzer)
	PATH="$(CURDIR)/$(BIN):$$PATH" sh native/fuzz/run.sh $(FUZZ_SECONDS)

wheels: $(VENV)/.ready ## dist/wheels: the entrypoint, and the engine for the torch or TensorFlow of WHEELS_PYTHON
	sh tools/build_wheels.sh $(WHEELS_PYTHON)

# The frameworks that the engine's wheel of a release has adapters for: those of the catalogue and the newest two minors.
# Torch before 2.6 needs an adapter for each Python.
WHEEL_TORCHES ?= 2.0.1 2.13.0 2.14.1 2.15.0
WHEEL_TENSORFLOWS ?= 2.11.1 2.14.1 2.20.0 2.21.0
WHEEL_PYTHONS ?= 3.8 3.9 3.10 3.11
# With aarch64, a wheel for Arm too (Debian's g++-aarch64-linux-gnu).
WHEEL_MACHINES ?= x86_64

release: ## dist/release: wheels (manylinux) and source distributions of the last commit, checked (Debian)
	$(PYTHON) tools/release/release.py --torch '$(WHEEL_TORCHES)' --tensorflow '$(WHEEL_TENSORFLOWS)' --python '$(WHEEL_PYTHONS)' \
		--machine '$(WHEEL_MACHINES)'

test-release: $(VENV)/.ready ## whole tier: two releases of one commit, installed where no compiler is
	$(PYTEST) -q -m release tests/release

test-containers: $(VENV)/.ready .venv-tensorflow/.ready ## whole tier: the image built, pushed and run; the entrypoint on every Python here
	@sh tools/check_containers.sh
	sh tools/build_wheels.sh $(BIN)/python
	sh tools/build_wheels.sh .venv-tensorflow/bin/python
	$(PYTEST) -q -m 'containers or images'

.venv-clients/.ready: Makefile tools/install_packages.sh
	PYTHON=$(PYTHON) sh tools/install_packages.sh .venv-clients 'awscli>=1.40,<2' 'pyarrow>=20' 's3torchconnectorclient>=1.5,<2'
	@touch $@

.venv-review/.ready: Makefile tools/install_packages.sh
	PYTHON=$(PYTHON) sh tools/install_packages.sh .venv-review 'sarif-tools>=3,<4' 'junitparser>=4,<6' 'check-jsonschema>=0.30,<1'
	@touch $@

.venv-trackers/.ready: Makefile tools/install_packages.sh
	PYTHON=$(PYTHON) sh tools/install_packages.sh .venv-trackers 'tensorboard>=2.10,<3' 'tensorboardX>=2.6,<3' 'mlflow>=3,<4' \
		'wandb>=0.19,<1' 'prometheus_client>=0.20,<1'
	@touch $@

# Where it cannot be had, that is said and tried again the next time.
.venv-clients/aws2/aws: tools/aws_cli_v2.sh
	sh tools/aws_cli_v2.sh .venv-clients/aws2

SDK_TESTS := $(addprefix tests/clients/test_,estimator.py deploy.py init_from.py torch_distributed.py notebook.py sdk_jobs.py sdk_endpoints.py sdk_remote.py alone.py) tests/localcloud/tuning/test_sdk_tuner.py

# The SageMaker SDK and the AWS CLI want botocore's versions of their own.
.venv-sdk/.ready: Makefile pyproject.toml tools/install_packages.sh
	PYTHON=$(PYTHON) sh tools/install_packages.sh .venv-sdk 'sagemaker>=2.200,<3' -e containers/entrypoint -e '.[local-cloud]' \
		'boto3>=1.34,<2' 'ipykernel>=6.29,<8' 'nbclient>=0.10,<0.12' 'hypothesis>=6.100,<7' 'jsonschema>=4.20,<5' 'pytest>=9,<10' 'pytest-timeout>=2.3,<3' 'pytest-xdist>=3.8,<4' 'syrupy>=7,<8'
	@touch $@

.venv-sdk3/.ready: Makefile pyproject.toml tools/install_packages.sh
	PYTHON=$(PYTHON) sh tools/install_packages.sh .venv-sdk3 'sagemaker>=3.20,<4' -e containers/entrypoint -e '.[local-cloud]' \
		'ipykernel>=6.29,<8' 'nbclient>=0.10,<0.12' 'hypothesis>=6.100,<7' 'jsonschema>=4.20,<5' 'pytest>=9,<10' 'pytest-timeout>=2.3,<3' 'syrupy>=7,<8'
	@touch $@

.venv-airflow/.ready: Makefile tools/install_packages.sh
	PYTHON=$(PYTHON) sh tools/install_packages.sh .venv-airflow 'apache-airflow>=3,<4' 'apache-airflow-providers-amazon>=9,<10'
	@touch $@

LARGE_CLIENT_TESTS := $(addprefix tests/clients/test_,sdk_v3.py airflow.py)
SDK_V3_TESTS := tests/clients/test_model_trainer.py tests/clients/test_notebook.py

test-clients-large: $(VENV)/.ready .venv-sdk3/.ready .venv-airflow/.ready ## whole tier: clients with large packages: SageMaker SDK v3, Airflow
	$(PYTEST) -q $(LARGE_CLIENT_TESTS)
	.venv-sdk3/bin/python -m pytest -q -m clients $(SDK_V3_TESTS)

test-clients: $(VENV)/.ready .venv-clients/.ready .venv-clients/aws2/aws .venv-sdk/.ready .venv-trackers/.ready .venv-review/.ready ## whole tier: stock AWS clients, and the SageMaker SDK's estimators
	$(PYTEST) -q -m clients $(ONE_PER_CORE) $(filter-out $(SDK_TESTS) $(SDK_V3_TESTS) $(LARGE_CLIENT_TESTS),$(call marked,clients))
	.venv-sdk/bin/python -m pytest -q -m clients $(ONE_PER_CORE) $(SDK_TESTS)

# --baseline fresh: have Gloo run again too, whose results are kept in build/conformance.
CONFORMANCE ?=

test-conformance: $(VENV)/.ready ## whole tier: the container contract, value by value; PyTorch's own distributed suite
	$(PYTEST) -q -m conformance
	$(BIN)/python native/conformance/run.py $(CONFORMANCE)

# Lies over $(VENV), whose torch and engine it uses.
.venv-programs/.ready: Makefile $(VENV)/.ready
	@test -x .venv-programs/bin/python || $(BIN)/python -m venv .venv-programs
	.venv-programs/bin/python -c 'import site, sys; print("import site; site.addsitedir(" + repr(sys.argv[1]) + ")", \
		file=open(site.getsitepackages()[0] + "/beneath.pth", "w"))' "$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')"
	.venv-programs/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' torchvision \
		'lightning>=2.6,<2.7' 'accelerate>=1.15,<2' 'transformers>=5.23,<6' 'deepspeed>=0.19,<0.20'
	@touch $@

test-programs: $(VENV)/.ready .venv-programs/.ready ## whole tier: Lightning, Accelerate, the Trainer, DeepSpeed and FSDP2 on smddp; the templates BERT and detection
	$(PYTEST) -q tests/programs

# Of the tier below, the only part from the package index.
.venv-launchers/.ready: Makefile tools/install_packages.sh
	PYTHON=$(PYTHON) sh tools/install_packages.sh .venv-launchers 'kubernetes-validate>=1.37,<2'
	@touch $@

test-launchers: $(VENV)/.ready .venv-launchers/.ready ## whole tier: ranks below a real mpirun, mpiexec and srun (root)
	$(PYTEST) -q -m launchers $(call marked,launchers)

# Without torch, as $(VENV) is without TensorFlow.
.venv-tensorflow/.ready: Makefile pyproject.toml containers/entrypoint/pyproject.toml tools/check_machine.sh tools/install_packages.sh $(NATIVE)
	@sh tools/check_machine.sh $(PYTHON)
	PYTHON=$(PYTHON) sh tools/install_packages.sh .venv-tensorflow '$(TENSORFLOW)' 'numpy<2' \
		'scikit-build-core>=0.11,<2' 'cmake>=3.20,<4' 'ninja>=1.11' -e containers/entrypoint -e '.[local-cloud]' \
		'ipykernel>=6.29,<8' 'nbclient>=0.10,<0.12' 'hypothesis>=6.100,<7' 'jsonschema>=4.20,<5' 'pytest>=9,<10' 'pytest-timeout>=2.3,<3' 'syrupy>=7,<8'
	.venv-tensorflow/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps \
		--no-build-isolation --config-settings=build-dir="build/tensorflow" ./native
	@touch $@

demo-tf: .venv-tensorflow/.ready ## the same with TensorFlow: a gradient tape, then model.fit of Keras
	.venv-tensorflow/bin/python templates/scripts/prepare_mnist.py data/mnist
	.venv-tensorflow/bin/smdp-launch launch templates/jobs/mnist_tf2.yaml --local --hosts 2 --workers-per-host 2
	.venv-tensorflow/bin/smdp-launch launch templates/jobs/mnist_keras.yaml --local --hosts 2 --workers-per-host 2

test-tensorflow: .venv-tensorflow/.ready ## whole tier: the library for TensorFlow and Keras, and its templates, without torch
	.venv-tensorflow/bin/python -m pytest -q -m tensorflow native/tests/tensorflow \
		tests/endtoend/test_mnist_tensorflow.py tests/endtoend/test_tensorflow_notebook.py containers/entrypoint/tests/serving

# Torch's versions, each in an environment of its own (.venv-torch-VERSION, gigabytes with CUDA's packages).
TORCHES ?= 2.0.1 2.1.2 2.7.1 2.13.0 newest

matrix: ## whole tier: the torch backend built and tested against TORCHES
	sh native/tests/matrix.sh $(PYTHON) $(TORCHES)

# Another Python on a machine with a GPU: one that has torch, the engine and pytest (docs/how-to/gpus/try.md).
GPU_PYTHON ?= $(BIN)/python
# --only copies,groups: a part of the table. --budget-s 1500: no program starts after these seconds.
GPU ?=

test-gpu: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(VENV)/.ready) ## whole tier: tests and measurements on a GPU, and a table of what ran and what did not
	$(GPU_PYTHON) native/benchmarks/gpu/measure.py $(GPU)

test-soak: $(VENV)/.ready ## whole tier: kills, fuzzing, long runs, all examples of the property tests
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "atheris>=2.3,<4"
	$(PYTEST) -q -m soak
	$(PYTEST) -q -m 'hypothesis and not ($(ELSEWHERE))' --hypothesis-profile whole $(PARALLEL)
	$(MAKE) test-planted
	@if command -v clang++ >/dev/null; then $(MAKE) fuzz; else echo "the fuzz targets did not run: no clang++ here"; fi

lint: $(VENV)/.ready ## everything that reads the code without running it
	$(BIN)/python tools/old_words.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache >/dev/null || $(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	sh tools/clang_tidy.sh $(BIN)
	$(BIN)/python tools/check_dockerfiles.py containers/*/Dockerfile*

format: $(VENV)/.ready ## rewrite the code in the house's form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

bench: $(VENV)/.ready ## how long the command line takes to start; the engine beside its peers, a short set (root)
	$(BIN)/python tools/bench_startup.py
	PATH="$(CURDIR)/$(BIN):$$PATH" python native/benchmarks/run.py --shape 2x2 --rate 1000 --rounds 1 --sizes 4K,64K,1M,4M

docs: $(VENV)/.ready ## build/site, the documentation; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## remove what make made
	rm -rf $(VENV) .venv-clients .venv-review .venv-sdk .venv-sdk3 .venv-airflow .venv-programs .venv-launchers .venv-tensorflow .venv-torch-* native/build build dist data .smdp
