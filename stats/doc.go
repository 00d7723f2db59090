// Package stats reports what pods and the node use: CPU, memory, network, processes, swap,
// block devices and pressure. It reads the cgroups and /proc on request, and serves one
// reading in three forms, which therefore agree:
//
//	Summary       /stats/summary, the types of k8s.io/kubelet/pkg/apis/stats/v1alpha1
//	Resource      /metrics/resource, the kubelet's names; metrics-server reads it
//	Cadvisor      /metrics/cadvisor, cAdvisor's names, as the kubelet exposes them
//
// Package stats/kernel reads the files, volumes/usage the disks.
//
//	Groups ──► kernel.Cgroup for each ──► rates ──► Snapshot ──► Summary, Resource, Cadvisor
//	                └─► unknown IDs ──► Identify (the runtime), remembered
//
// # Promises
//
//   - Nothing runs between requests. The runtime is asked only for sandboxes and containers
//     that are new since the last reading.
//   - One reading at a time: a request that comes while one of its kind is under way gets
//     that one's result. Ten clients at once cost one reading, and ten responses.
//   - A cgroup or process that ends while it is read is left out, and is no error. Anything
//     else that cannot be read is left out, too, and reported as an error of the scrape; it
//     never fails the rest.
//   - A rate of CPU is an average since an earlier request, over ten seconds or more if
//     there are requests that far apart, over five minutes at most. Without such a request
//     there is no rate, except for what was started within five minutes: its rate is the
//     average since then.
package stats
