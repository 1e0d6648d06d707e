# Aliases of ./run for make.
.DEFAULT_GOAL := help
.PHONY: help demo test check bench chaos mutants docs

help: ## list the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo: ## start the whole shop on this machine
	@./run demo

test: ## run the tests that start no shop and no browser
	@./run test

check: ## lint, types, migrations, tests: what CI runs
	@./run check

bench: ## the benchmarks
	@./run bench

chaos: ## the long fault-injection runs
	@./run chaos

mutants: ## break each requirement, and check that its test fails
	@./run mutants

docs: ## the documentation site, in build/docs
	@./run docs
