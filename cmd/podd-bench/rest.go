package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// restRows are the rows of a node at rest; an empty one is not wanted.
type restRows struct{ idle, idleAll, rss, shim string }

// atRest starts the pods of the resting node and measures what it costs.
func (b *bench) atRest(ctx context.Context, column string, _ int) error {
	return b.rest(ctx, column, plain, restRows{rowIdle, rowIdleAll, rowRSS, rowShim})
}

// rest measures a node at rest with pods of that shape.
func (b *bench) rest(ctx context.Context, column string, of shape, rows restRows) error {
	var names []string
	for range b.plan.idlePods {
		names = append(names, b.name("idle-"+column))
	}
	_, _, pods, err := b.startPods(ctx, column, 6, names, of)
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.plan.settle); err != nil {
		return err
	}
	if err := b.measureRest(ctx, column, rows); err != nil {
		return err
	}
	return b.stopPods(ctx, column, names, pods)
}

// measureRest measures CPU over the plan's idle time, in thousandths of a
// core, and the agent's resident memory in MiB.
func (b *bench) measureRest(ctx context.Context, column string, rows restRows) error {
	agent := 0
	if column != colFloor {
		agent = b.agents[column].pid()
	}
	runtime, err := b.runtimePids()
	if err != nil {
		return err
	}
	before, err := cpuOf(append(runtime, agent))
	if err != nil {
		return err
	}
	wokenBefore := woken(agent)
	jobs, err := b.jobs(ctx, column)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := sleep(ctx, b.plan.idle); err != nil {
		return err
	}
	after, err := cpuOf(append(runtime, agent))
	if err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	millicores := func(pids ...int) float64 {
		var sum time.Duration
		for _, pid := range pids {
			sum += after[pid] - before[pid]
		}
		return sum.Seconds() / took * 1000
	}
	b.add(rows.idleAll, column, millicores(append(runtime, agent)...))
	for _, shim := range runtime[1:] {
		pss, err := shareOfMemory(shim)
		if err != nil {
			return err
		}
		b.add(rows.shim, column, pss)
	}
	if column == colFloor {
		return nil
	}
	b.add(rows.idle, column, millicores(agent))
	if err := b.jobsRan(ctx, column, jobs); err != nil {
		return err
	}
	memory, err := memoryOf(agent)
	if err != nil {
		return err
	}
	b.add(rows.rss, column, memory["VmRSS"])
	b.say("  %.1f MiB of it anonymous, %.1f of files; woken %.1f times a second",
		memory["RssAnon"], memory["RssFile"], float64(woken(agent)-wokenBefore)/took)
	if column == colPodd && b.opts.heapProfile != "" {
		return b.profile(ctx, "/debug/pprof/heap", b.opts.heapProfile)
	}
	return nil
}

// jobMetrics count podd's jobs of every five minutes, which a measurement of
// that length must have inside.
var jobMetrics = []string{
	"kubelet_pleg_relist_duration_seconds_count",
	`kubelet_runtime_operations_total{operation_type="list_images"}`, // image garbage collection
}

// jobs is how often each job of podd's has run.
func (b *bench) jobs(ctx context.Context, column string) ([]float64, error) {
	if column != colPodd {
		return nil, nil
	}
	body, err := b.agents[colPodd].(*podd).Get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("count podd's jobs: %w", err)
	}
	var counts []float64
	for _, name := range jobMetrics {
		_, rest, found := strings.Cut(string(body), "\n"+name+" ")
		value, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.ParseFloat(value, 64)
		if !found || err != nil {
			return nil, fmt.Errorf("count podd's jobs: no number %s in its metrics", name)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// jobsRan is an error when a job did not run since, although the plan was long
// enough for it.
func (b *bench) jobsRan(ctx context.Context, column string, before []float64) error {
	after, err := b.jobs(ctx, column)
	if err != nil || b.plan.idle < idleOfAJob {
		return err
	}
	for i := range after {
		if after[i] <= before[i] {
			return fmt.Errorf("%s did not change in %v: podd's jobs of every five minutes are not in the figure", jobMetrics[i], b.plan.idle)
		}
	}
	return nil
}

// runtimePids are containerd and the shims of the bench's own node.
func (b *bench) runtimePids() ([]int, error) {
	pids := []int{b.node.Containerd.Pid()}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		argv0, rest, _ := strings.Cut(string(cmdline), "\x00")
		if strings.HasSuffix(argv0, "containerd-shim-runc-v2") && strings.Contains(rest, b.node.Dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// cpuOf is the processor time that each process has used, in nanoseconds'
// grain; 0 for PID 0. The times in /proc/PID/stat count by the clock's ticks:
// sixty processes that each run for microseconds are lost in them, or counted
// a hundredfold.
func cpuOf(pids []int) (map[int]time.Duration, error) {
	used := map[int]time.Duration{}
	for _, pid := range pids {
		if pid == 0 {
			continue
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil || len(threads) == 0 {
			return nil, fmt.Errorf("read the CPU time of process %d: it is gone, or the kernel keeps no schedstat", pid)
		}
		for _, path := range threads {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // a thread that has just ended
			}
			ran, _, _ := strings.Cut(string(text), " ")
			n, err := strconv.ParseInt(ran, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read the CPU time of process %d: %q: %w", pid, text, err)
			}
			used[pid] += time.Duration(n)
		}
	}
	return used, nil
}

// memoryOf is what /proc/PID/status says of a process's memory, in MiB.
func memoryOf(pid int) (map[string]float64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	memory := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if kib, ok := strings.CutSuffix(strings.TrimSpace(value), " kB"); ok {
			if n, err := strconv.ParseFloat(strings.TrimSpace(kib), 64); err == nil {
				memory[key] = n / 1024
			}
		}
	}
	if memory["VmRSS"] == 0 {
		return nil, fmt.Errorf("read the memory of process %d: no VmRSS in %s", pid, path)
	}
	return memory, nil
}

// shareOfMemory is a process's proportional set size in MiB: pages that many
// processes share, as the shims do their code, count once for all.
func shareOfMemory(pid int) (float64, error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	_, rest, _ := strings.Cut(string(text), "\nPss:")
	value, _, _ := strings.Cut(rest, " kB")
	kib, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: no Pss in %s", pid, path)
	}
	return kib / 1024, nil
}

// woken is how often the process's threads waited for something so far.
func woken(pid int) (n int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(text), "\nvoluntary_ctxt_switches:")
		count, _, _ := strings.Cut(rest, "\n")
		times, _ := strconv.Atoi(strings.TrimSpace(count))
		n += times
	}
	return n
}

// profileBurst takes podd's CPU profile beside the first burst, if wanted; the
// returned function waits for it.
func (b *bench) profileBurst(ctx context.Context, column string, round int) func() error {
	if column != colPodd || round != 0 || b.opts.cpuProfile == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- b.profile(ctx, "/debug/pprof/profile?seconds=5", b.opts.cpuProfile) }()
	return func() error { return <-done }
}

func (b *bench) profile(ctx context.Context, path, file string) error {
	body, err := b.agents[colPodd].(*podd).Get(ctx, path)
	if err != nil {
		return fmt.Errorf("take a profile: %w", err)
	}
	if len(body) == 0 || !strings.HasPrefix(http.DetectContentType(body), "application/x-gzip") {
		return fmt.Errorf("take a profile: %s answered no profile: %.80q", path, body)
	}
	return os.WriteFile(file, body, 0o644)
}
