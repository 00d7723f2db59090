package stats

import (
	"context"
	"io"
	"strconv"
	"time"

	api "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/stats/kernel"
)

// Cadvisor writes /metrics/cadvisor: cAdvisor's names with the labels that the kubelet
// gives them, of the machine's root cgroup, those of all pods and of the QoS classes, each
// pod's, and its sandbox's and containers'.
func (c *Collector) Cadvisor(ctx context.Context, w io.Writer) error {
	snap, err := c.snapshot(ctx, kernel.All)
	if err != nil {
		return err
	}
	rows := c.rows(ctx, snap)
	out := newMetricsWriter(w)
	c.writeMachine(out)
	for i := range families {
		writeRows(out, &families[i], rows)
	}
	failed := 0.0
	if snap.Err != nil {
		failed = 1
	}
	out.family("container_scrape_error", gauge, "1 if there was an error while getting container metrics, 0 otherwise")
	out.series("container_scrape_error", failed, time.Time{})
	return out.flush()
}

// writeRows writes a family, which begins with its first series.
func writeRows(out *metricsWriter, f *family, rows []row) {
	begun := false
	var r *row
	write := func(value float64, extra string) {
		if !begun {
			begun = true
			out.family(f.name, f.kind, f.help)
		}
		at := r.Time
		if f.noTimestamp {
			at = time.Time{}
		}
		out.series(f.name, value, at, r.labels, extra)
	}
	for i := range rows {
		r = &rows[i]
		f.values(r, write)
	}
}

// row is a cgroup with the text of its labels.
type row struct {
	*measured
	labels string
	// started is when its container did, or the cgroup was made.
	started time.Time
	// interfaces and devices are in the order of network and Devices.
	interfaces []string
	devices    []deviceLabels
	// disk is what the container's layer uses, or for the root the file system; diskDevice is
	// the label of its device.
	disk       *api.FsStats
	diskDevice string
}

// deviceLabels are the labels of a block device, and those of its reads and writes.
type deviceLabels struct{ device, reads, writes string }

func labelsOf(name string, d kernel.Device) *deviceLabels {
	operation := func(kind string) string {
		return label("device", name, "major", strconv.FormatUint(d.Major, 10), "minor", strconv.FormatUint(d.Minor, 10), "operation", kind)
	}
	return &deviceLabels{device: label("device", name), reads: operation("Read"), writes: operation("Write")}
}

// rows adds to a reading what only Cadvisor shows.
func (c *Collector) rows(ctx context.Context, snap *Snapshot) []row {
	pods := c.cfg.Pods()
	states, layers := statesOf(pods), c.layers(ctx)
	disk := label("device", c.cfg.Kernel.DeviceOf(c.cfg.Disk))
	devices := map[[2]uint64]*deviceLabels{}
	rows := make([]row, len(snap.all))
	for i := range snap.all {
		m := &snap.all[i]
		name := ""
		if m.ID != "" {
			name = m.ID
		}
		r := row{measured: m, diskDevice: disk, started: states.started(m).Time, labels: label(
			"container", m.who.Container, "id", m.Path, "image", m.who.Image, "name", name, "namespace", m.who.Namespace, "pod", m.who.Pod)}
		for j := range m.network {
			r.interfaces = append(r.interfaces, label("interface", m.network[j].Name))
		}
		for _, d := range m.Devices {
			at := [2]uint64{d.Major, d.Minor}
			if devices[at] == nil {
				devices[at] = labelsOf(c.cfg.Kernel.DeviceName(d.Major, d.Minor), d)
			}
			r.devices = append(r.devices, *devices[at])
		}
		switch {
		case m.Path == "/":
			if fs, err := c.cfg.Storage.NodeFS(); err == nil {
				r.disk = &fs
			}
		case m.isContainer():
			r.disk = layers[layer{string(m.who.UID), m.who.Container}]
		}
		rows[i] = r
	}
	return rows
}

// layer names a container of a pod.
type layer struct{ uid, container string }

// layers returns what containers' writable layers use.
func (c *Collector) layers(ctx context.Context) map[layer]*api.FsStats {
	all := map[layer]*api.FsStats{}
	for _, p := range c.cfg.Storage.Pods(ctx, c.cfg.Pods()) {
		for _, k := range p.Containers {
			all[layer{p.PodRef.UID, k.Name}] = k.Rootfs
		}
	}
	return all
}

// writeMachine writes what does not change. It leaves out cAdvisor's series for
// mainframes, memory modules and NUMA topology.
func (c *Collector) writeMachine(out *metricsWriter) {
	m := c.machine()
	out.family("cadvisor_version_info", gauge, "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.")
	out.series("cadvisor_version_info", 1, time.Time{}, label(
		"cadvisorRevision", "", "cadvisorVersion", "podd "+c.cfg.Version, "dockerVersion", "", "kernelVersion", m.Kernel, "osVersion", m.OS))
	labels := label("boot_id", m.BootID, "machine_id", m.MachineID, "system_uuid", m.SystemUUID)
	for _, f := range []struct {
		name, help string
		value      float64
	}{
		{"machine_cpu_cores", "Number of logical CPU cores.", float64(m.Cores)},
		{"machine_cpu_physical_cores", "Number of physical CPU cores.", float64(m.PhysicalCores)},
		{"machine_cpu_sockets", "Number of CPU sockets.", float64(m.Sockets)},
		{"machine_memory_bytes", "Amount of memory installed on the machine.", float64(m.Memory)},
		{"machine_swap_bytes", "Amount of swap memory available on the machine.", float64(m.Swap)},
	} {
		out.family(f.name, gauge, f.help)
		out.series(f.name, f.value, time.Time{}, labels)
	}
}
