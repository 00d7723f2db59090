package node

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"podd/agent"
	"podd/bundle"
	"podd/cri"
	"podd/volumes/usage"
)

// layers locates containers' writable layers: containerd reports the directory, since
// its statistics are as old as stats_collect_period, ten minutes for the bundled one.
// Other runtimes report statistics.
type layers struct {
	client     *cri.Client
	containerd bool
}

// layerTimeout bounds the calls for one container.
const layerTimeout = 5 * time.Second

func (l layers) Layer(ctx context.Context, id string) (usage.Layer, error) {
	ctx, cancel := context.WithTimeout(ctx, layerTimeout)
	defer cancel()
	if l.containerd {
		if dir := l.dir(ctx, id); dir != "" {
			return usage.Layer{Dir: dir, On: dir}, nil
		}
	}
	u, err := l.client.LayerUsage(ctx, id)
	return usage.Layer{Used: usage.Amount{Bytes: u.Bytes, Inodes: u.Inodes}, On: u.On}, err
}

// dir is empty if containerd does not report it.
func (l layers) dir(ctx context.Context, id string) string {
	conn, err := grpc.NewClient(l.client.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return ""
	}
	defer conn.Close()
	dir, err := bundle.Containerd{Conn: conn}.LayerDir(ctx, id)
	if err != nil {
		return ""
	}
	return dir
}

// limits returns what watches pods' storage limits, or nil if the configuration
// disables that.
func (n *parts) limits() agent.Limits {
	if !n.cfg.LimitStorage {
		return nil
	}
	return n.meter
}

// Summary implements server.Runtime: the kubelet's /stats/summary, as far as podd has
// it, which is the storage of the node and of pods.
func (a answers) Summary(ctx context.Context, storage bool) (any, error) {
	out := &stats.Summary{Node: stats.NodeStats{NodeName: a.cfg.NodeName, StartTime: bootTime()}, Pods: []stats.PodStats{}}
	if !storage {
		return out, nil
	}
	fs, err := a.meter.NodeFS()
	if err != nil {
		return nil, err
	}
	out.Node.Fs = &fs
	out.Pods = a.meter.Pods(ctx, a.active())
	return out, nil
}

// active returns the pods that have not completed.
func (n *Node) active() []*v1.Pod {
	var all []*v1.Pod
	for _, p := range n.status.Pods() {
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			all = append(all, p)
		}
	}
	return all
}

// bootTime returns when the machine booted, to the second.
func bootTime() metav1.Time {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return metav1.Time{}
	}
	return metav1.NewTime(time.Now().Add(-time.Duration(up.Nano())).Round(time.Second))
}
