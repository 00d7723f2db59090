package main

// target is a package, or some files of it, with the tests that are asked.
type target struct {
	dir string
	// files are those that are pure; none for all.
	files []string
	// skip are tests (a pattern, as of go test -skip) that touch the machine,
	// where changed code must not act, or that take their time.
	skip string
}

var targets = []target{
	{dir: "agent/allocation"},
	{dir: "agent/backoff"},
	{dir: "agent/plan"},
	{dir: "status", files: []string{"compute.go", "conditions.go", "containers.go", "phase.go", "probes.go", "resources.go", "writer.go"}},
	{dir: "admission", files: []string{"admit.go", "ports.go", "preempt.go", "resize.go", "resources.go", "sysctls.go"}},
	{dir: "eviction"},
	{dir: "eviction/threshold"},
	{dir: "stats"},
	{dir: "cluster/nodestatus"},
	{dir: "images/records"},
	{dir: "server/kubeletapi"},
	{dir: "objects"},
	{dir: "plugins/dra"},
	{dir: "cluster/tokens"},
	{dir: "cluster/mirror"},
	{dir: "plugins/csi"},
	{dir: "cluster/apiserver"},
	{dir: "plugins/devices"},
	{dir: "cluster/identity"},
	{dir: "podconfig", files: []string{"changes.go", "merge.go"}},
	{dir: "cgroup", files: []string{"limits.go", "parent.go"}, skip: "Real"},
	{dir: "images", files: []string{"pullbackoff.go", "pullcause.go"}},
	{dir: "images/gc", files: []string{"policy.go"}},
	{dir: "images/credentials", files: []string{"match.go"}, skip: "Plugin|Directory|Hostile"},
	{dir: "prober", files: []string{"probe.go", "targets.go", "queue.go", "gate.go"},
		skip: "GRPC|HTTP|TCP|Server|Connections|Cost"},
}
