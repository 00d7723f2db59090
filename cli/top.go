package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// summaryPath is the path of the daemon's statistics.
const summaryPath = "/stats/summary"

// rateWait is how long podd top measures CPU if the daemon has no earlier request to compute a
// rate from.
const rateWait = time.Second

// TopOptions are the options of podd top pods and podd top node.
type TopOptions struct {
	StateDir  string
	Namespace string
	// Pods are names; empty means all.
	Pods []string
	// Containers shows each container instead of each pod.
	Containers bool
	NoHeaders  bool
	// SortBy is cpu or memory; empty sorts by name.
	SortBy string
}

// unknown is kubectl's word for a value that was not measured.
const unknown = "<unknown>"

// CheckSort returns an error if pods cannot be sorted by SortBy.
func (o *TopOptions) CheckSort() error {
	if o.SortBy != "" && o.SortBy != "cpu" && o.SortBy != "memory" {
		return UsageErrorf("--sort-by accepts only cpu or memory, not %q", o.SortBy)
	}
	return nil
}

// topUsage is a line of podd top. cpu and memory are nil if unknown.
type topUsage struct {
	namespace, pod, container string
	cpu                       *uint64 // nanoseconds a second
	memory                    *uint64 // bytes of the working set
}

// RunPods prints the resource usage of pods, as kubectl top pods does.
func (o *TopOptions) RunPods(ctx context.Context, out, errOut io.Writer) error {
	names, err := parsePodNames(o.Pods, o.Namespace)
	if err != nil {
		return err
	}
	s, err := newClient(o.StateDir).statsSummary(ctx)
	if err != nil {
		return err
	}
	lines, missing := o.lines(s, names)
	if len(lines) == 0 && len(missing) == 0 {
		_, err := fmt.Fprintf(errOut, "No pods that run found%s.\n", within(o.Namespace))
		return err
	}
	if len(lines) > 0 {
		t := table{width: widthOf(out)}
		if err := t.write(out, o.rows(lines)); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%s", strings.Join(missing, "\n"))
	}
	return nil
}

func within(namespace string) string {
	if namespace == "" {
		return ""
	}
	return fmt.Sprintf(" in namespace %q", namespace)
}

// lines returns the lines to show, sorted. missing are names of pods that do not run.
func (o *TopOptions) lines(s stats.Summary, names []podName) (lines []topUsage, missing []string) {
	found := map[podName]bool{}
	for _, p := range s.Pods {
		chosen := len(names) == 0 && (o.Namespace == "" || o.Namespace == p.PodRef.Namespace)
		for _, n := range names {
			// The name in a manifest lacks the node's name, which podd appends for static pods.
			same := n.name == p.PodRef.Name || n.name+"-"+s.Node.NodeName == p.PodRef.Name
			if same && (n.namespace == "" || n.namespace == p.PodRef.Namespace) {
				found[n], chosen = true, true
			}
		}
		if !chosen {
			continue
		}
		sum := topUsage{namespace: p.PodRef.Namespace, pod: p.PodRef.Name, cpu: new(uint64), memory: new(uint64)}
		for _, c := range p.Containers {
			one := topUsage{namespace: sum.namespace, pod: sum.pod, container: c.Name}
			if c.CPU != nil {
				one.cpu = c.CPU.UsageNanoCores
			}
			if c.Memory != nil {
				one.memory = c.Memory.WorkingSetBytes
			}
			sum.cpu, sum.memory = sumIfKnown(sum.cpu, one.cpu), sumIfKnown(sum.memory, one.memory)
			if o.Containers {
				lines = append(lines, one)
			}
		}
		if !o.Containers && len(p.Containers) > 0 {
			lines = append(lines, sum)
		}
	}
	for _, n := range names {
		if !found[n] {
			missing = append(missing, fmt.Sprintf("pod %q does not run", n))
		}
	}
	slices.SortStableFunc(lines, o.compare)
	return lines, missing
}

// sumIfKnown returns nil if either summand is unknown: otherwise a part would pass for the sum.
func sumIfKnown(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	n := *a + *b
	return &n
}

// compare sorts by the requested value, largest first, and then by name.
func (o *TopOptions) compare(a, b topUsage) int {
	value := func(n *uint64) uint64 {
		if n == nil {
			return 0
		}
		return *n
	}
	by := 0
	switch o.SortBy {
	case "cpu":
		by = cmp.Compare(value(b.cpu), value(a.cpu))
	case "memory":
		by = cmp.Compare(value(b.memory), value(a.memory))
	}
	return cmp.Or(by, cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod), cmp.Compare(a.container, b.container))
}

// rows returns kubectl's columns.
func (o *TopOptions) rows(lines []topUsage) [][]string {
	var rows [][]string
	row := func(namespace, pod, name string, more ...string) {
		var cells []string
		if o.Namespace == "" {
			cells = append(cells, printable(namespace))
		}
		if o.Containers {
			cells = append(cells, printable(pod))
		}
		rows = append(rows, append(append(cells, printable(name)), more...))
	}
	if !o.NoHeaders {
		row("NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)")
	}
	for _, l := range lines {
		name := l.pod
		if o.Containers {
			name = l.container
		}
		row(l.namespace, l.pod, name, millicores(l.cpu), mebibytes(l.memory))
	}
	return rows
}

// RunNode prints the node's resource usage, as kubectl top node --show-capacity does.
// Percentages refer to the machine's capacity.
func (o *TopOptions) RunNode(ctx context.Context, out io.Writer) error {
	s, err := newClient(o.StateDir).statsSummary(ctx)
	if err != nil {
		return err
	}
	n := s.Node
	cells := []string{n.NodeName, unknown, unknown, unknown, unknown}
	if n.CPU != nil && n.CPU.UsageNanoCores != nil {
		cells[1], cells[2] = millicores(n.CPU.UsageNanoCores), percent(*n.CPU.UsageNanoCores, uint64(runtime.NumCPU())*uint64(time.Second))
	}
	if m := n.Memory; m != nil && m.WorkingSetBytes != nil {
		cells[3] = mebibytes(m.WorkingSetBytes)
		if m.AvailableBytes != nil {
			cells[4] = percent(*m.WorkingSetBytes, *m.WorkingSetBytes+*m.AvailableBytes)
		}
	}
	rows := [][]string{cells}
	if !o.NoHeaders {
		rows = append([][]string{{"NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"}}, rows...)
	}
	t := table{width: widthOf(out)}
	return t.write(out, rows)
}

func millicores(nano *uint64) string {
	if nano == nil {
		return unknown
	}
	return fmt.Sprintf("%dm", (*nano+999_999)/1_000_000) // rounded up, as quantities are
}

func mebibytes(n *uint64) string {
	if n == nil {
		return unknown
	}
	return fmt.Sprintf("%dMi", *n>>20)
}

func percent(n, of uint64) string {
	if of == 0 {
		return unknown
	}
	return fmt.Sprintf("%d%%", n*100/of)
}

// statsSummary returns the daemon's statistics of CPU and memory. If the daemon has no CPU rates
// yet, because nobody asked in the last minutes, it asks again after rateWait.
func (c *client) statsSummary(ctx context.Context) (s stats.Summary, err error) {
	fetch := func() error {
		s = stats.Summary{}
		return c.get(ctx, summaryPath, url.Values{"only_cpu_and_memory": {"true"}}, func(decode func(any) error) error { return decode(&s) })
	}
	if err = fetch(); err != nil || hasCPURates(s) {
		return s, err
	}
	select {
	case <-time.After(rateWait):
		return s, fetch()
	case <-ctx.Done():
		return s, context.Cause(ctx)
	}
}

// hasCPURates reports whether all rates are known.
func hasCPURates(s stats.Summary) bool {
	if s.Node.CPU != nil && s.Node.CPU.UsageNanoCores == nil {
		return false
	}
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			if c.CPU != nil && c.CPU.UsageNanoCores == nil {
				return false
			}
		}
	}
	return true
}
