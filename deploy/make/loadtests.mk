# Load tests and benchmarks: each prints a table, leaves a page in loadtests/reports and ends with one line
# of figures. QUICK=1 makes them short, and too noisy to quote.
.PHONY: bench-peers bench-batch bench-prefix bench-cache overload streams load
LOADTEST := $(BIN)/python -m loadtests
QUICK_FLAG := $(if $(QUICK),--quick)

bench-peers: setup ## The gateway beside its peers on one core each (under 10 minutes; QUICK=1)
	@$(LOADTEST).peers $(QUICK_FLAG)

bench-batch: setup setup-engine ## Batched /predict against the same clients calling vLLM (QUICK=1)
	@$(LOADTEST).bench_batch $(QUICK_FLAG)

bench-prefix: setup setup-engine ## Prefix routing on real engines against other policies (QUICK=1)
	@$(LOADTEST).bench_prefix $(QUICK_FLAG)

bench-cache: setup ## Answers from memory and Redis against answers from an engine (QUICK=1)
	@$(LOADTEST).bench_cache $(QUICK_FLAG)

overload: setup ## Goodput and refusals from half to three times the capacity (QUICK=1)
	@$(LOADTEST).overload $(QUICK_FLAG)

streams: setup ## Health and memory with 1,500 streams open
	@$(LOADTEST).streams

load: setup setup-engine ## A short Locust and open-loop run against `changeover serve` (URL=... for one that runs)
	@$(LOADTEST).load $(QUICK_FLAG) $(if $(URL),--url $(URL))
