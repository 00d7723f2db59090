package cri

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/cri/spec"
	"podd/internal/pod"
)

// maxStatusCalls bounds the concurrent status calls of one observation: a pod with many
// dead containers must not flood the runtime after a restart of podd.
const maxStatusCalls = 8

// Observe observes one pod: all its sandboxes and containers, running and dead, with the
// termination messages of dead ones. If podd knows them all by ID, it queries them by ID: a
// call for each sandbox and each container that has not ended. Otherwise it blocks for a
// list, which it shares with other callers that need one, and for concurrent status calls
// for everything new since the last observation. An unknown pod is an empty Observed, not
// an error.
func (c *Client) Observe(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	if seen, known, err := c.observeByID(ctx, uid); known {
		return seen, err
	}
	seen := pod.Observed{UID: uid, At: time.Now()}
	sandboxes, containers, err := c.listOwned(ctx, &seen)
	if err != nil {
		return seen, err
	}
	if err := c.addStatuses(ctx, &seen, sandboxes, containers); err != nil {
		return seen, err
	}
	return seen, nil
}

// Lookup is Observe without status calls: it says who owns a pod, and whether anything of
// it exists. It caches nothing.
func (c *Client) Lookup(ctx context.Context, uid pod.UID) (pod.Observed, error) {
	seen := pod.Observed{UID: uid, At: time.Now()}
	if boxes, containers, known := c.roster.known(uid); known && len(boxes)+len(containers) == 0 {
		return seen, nil
	}
	sandboxes, containers, err := c.listOwned(ctx, &seen)
	if err != nil {
		return seen, err
	}
	for _, s := range sandboxes {
		seen.Sandboxes = append(seen.Sandboxes, sandboxOf(s))
	}
	for _, k := range containers {
		seen.Containers = append(seen.Containers, pod.Container{
			ID: k.Id, Name: k.Metadata.GetName(), SandboxID: k.PodSandboxId, State: containerState(k.State), CreatedAt: time.Unix(0, k.CreatedAt),
		})
	}
	return seen, nil
}

// listOwned lists the sandboxes and containers of a pod, newest first, except those of
// another podd. It records the owner in seen.
func (c *Client) listOwned(ctx context.Context, seen *pod.Observed) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
	found, err := c.list(ctx, seen.UID)
	if err != nil {
		return nil, nil, err
	}
	sandboxes, containers, left := c.removeForeign(found.sandboxes, found.containers)
	if f, ok := left[seen.UID]; ok && f.alive {
		seen.Foreign = f.instance
	}
	slices.SortFunc(sandboxes, newestFirst)
	slices.SortFunc(containers, newestFirst)
	identify(seen, sandboxes, containers)
	if n := len(sandboxes); n > 0 && seen.StartTime.IsZero() && c.hasDirectory(seen.UID) {
		seen.StartTime, seen.TakenOver = time.Unix(0, sandboxes[n-1].CreatedAt), true
	}
	return sandboxes, containers, nil
}

// attempt is a sandbox or a container, from a list or from its status.
type attempt[M interface{ GetAttempt() uint32 }] interface {
	GetMetadata() M
	GetCreatedAt() int64
}

// newestFirst orders sandboxes and containers by attempt, and then by time.
func newestFirst[M interface{ GetAttempt() uint32 }, T attempt[M]](a, b T) int {
	return cmp.Or(cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()), cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()))
}

func sandboxOf(s *runtimeapi.PodSandbox) pod.Sandbox {
	return pod.Sandbox{ID: s.Id, Attempt: s.Metadata.GetAttempt(), Ready: s.State == runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: time.Unix(0, s.CreatedAt)}
}

// labelled is a sandbox or a container with the labels and annotations that podd wrote.
type labelled interface {
	GetLabels() map[string]string
	GetAnnotations() map[string]string
}

// identify reads names, source and start time back from labels and annotations: from the
// newest sandbox first, and from containers only if no sandbox is left.
func identify[S, C labelled](seen *pod.Observed, sandboxes []S, containers []C) {
	for _, s := range sandboxes {
		identifyBy(seen, s)
	}
	for _, k := range containers {
		identifyBy(seen, k)
	}
}

// identifyBy fills in the fields that are still unknown.
func identifyBy(seen *pod.Observed, of labelled) {
	if seen.Name == "" {
		seen.Name, seen.Namespace = of.GetLabels()[spec.LabelPodName], of.GetLabels()[spec.LabelPodNamespace]
	}
	annotations := of.GetAnnotations()
	if seen.Source == "" {
		seen.Source = pod.Source(annotations[pod.AnnotationSource])
	}
	if seen.StartTime.IsZero() {
		if t, err := time.Parse(time.RFC3339Nano, annotations[pod.AnnotationStartTime]); err == nil {
			seen.StartTime = t
		}
	}
}

// addStatuses queries the statuses that are not cached, concurrently, and adds them to seen. It
// leaves out sandboxes and containers that were removed since the lists.
func (c *Client) addStatuses(ctx context.Context, seen *pod.Observed, sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) error {
	memo, age := c.loadMemo(seen.UID)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxStatusCalls)
	boxes := make([]*pod.Sandbox, len(sandboxes))
	for i, s := range sandboxes {
		box := sandboxOf(s)
		switch facts, cached := memo.sandboxes[s.Id]; {
		case !box.Ready: // it has no address any more, and the list has the rest
			boxes[i] = &box
		case cached:
			c.metrics.statusLookups.WithLabelValues("memo").Inc()
			box.IPs, box.HostNetwork = facts.ips, facts.hostNetwork
			boxes[i] = &box
		default:
			g.Go(func() (err error) {
				boxes[i], err = c.completeSandbox(ctx, box)
				return err
			})
		}
	}
	found := make([]*pod.Container, len(containers))
	for i, k := range containers {
		if known, ok := memo.containers[k.Id]; ok && known.State == containerState(k.State) {
			c.metrics.statusLookups.WithLabelValues("memo").Inc()
			found[i] = &known
			continue
		}
		g.Go(func() (err error) {
			found[i], err = c.completeContainer(ctx, k)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, b := range boxes {
		if b != nil {
			seen.Sandboxes = append(seen.Sandboxes, *b)
		}
	}
	for _, k := range found {
		if k != nil {
			seen.Containers = append(seen.Containers, *k)
		}
	}
	c.storeMemo(seen.UID, memoOf(seen), age, !seen.StartTime.IsZero())
	return nil
}

// completeSandbox returns a listed sandbox with the fields that a list lacks; nil if it was
// removed meanwhile.
func (c *Client) completeSandbox(ctx context.Context, box pod.Sandbox) (*pod.Sandbox, error) {
	st, err := c.getSandboxStatus(ctx, box.ID)
	if err != nil || st == nil {
		return nil, err
	}
	addSandboxStatus(&box, st)
	return &box, nil
}

// getSandboxStatus returns the status of a sandbox; nil if it does not exist.
func (c *Client) getSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	c.metrics.statusLookups.WithLabelValues("call").Inc()
	r, err := c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		err = mapError("ask for the status of sandbox "+short(id), err)
		if gone(err) {
			return nil, nil
		}
		return nil, err
	}
	return r.GetStatus(), nil
}

// addSandboxStatus adds the fields that a list lacks to a sandbox.
func addSandboxStatus(box *pod.Sandbox, st *runtimeapi.PodSandboxStatus) {
	box.Ready = st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	box.HostNetwork = st.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	if ip := st.GetNetwork().GetIp(); ip != "" {
		box.IPs = append(box.IPs, ip)
	}
	for _, ip := range st.GetNetwork().GetAdditionalIps() {
		box.IPs = append(box.IPs, ip.Ip)
	}
}

// completeContainer returns a listed container with the fields that a list lacks; nil if it
// was removed meanwhile.
func (c *Client) completeContainer(ctx context.Context, k *runtimeapi.Container) (*pod.Container, error) {
	st, err := c.getContainerStatus(ctx, k.Id)
	if err != nil || st == nil {
		return nil, err
	}
	return c.observedContainer(ctx, k.PodSandboxId, st), nil
}

// getContainerStatus returns the status of a container; nil if it does not exist.
func (c *Client) getContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	c.metrics.statusLookups.WithLabelValues("call").Inc()
	r, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		err = mapError("ask for the status of container "+short(id), err)
		if gone(err) {
			return nil, nil
		}
		return nil, err
	}
	return r.GetStatus(), nil
}

// observedContainer returns a container from its status and its files on the host.
func (c *Client) observedContainer(ctx context.Context, sandbox string, st *runtimeapi.ContainerStatus) *pod.Container {
	out := fromContainerStatus(sandbox, st)
	out.Kept = specFromAnnotations(out.Name, st.Annotations)
	if out.State == pod.ContainerExited {
		out.Message = joinMessages(c.redactedMessage(ctx, st), c.terminationMessage(st))
	}
	out.TerminationLog = c.ownMessageFile(st)
	return &out
}

func fromContainerStatus(sandbox string, st *runtimeapi.ContainerStatus) pod.Container {
	out := pod.Container{
		ID:           st.Id,
		Name:         st.Metadata.GetName(),
		SandboxID:    sandbox,
		State:        containerState(st.State),
		RestartCount: int32(st.Metadata.GetAttempt()),
		CreatedAt:    time.Unix(0, st.CreatedAt),
		Image:        st.Image.GetImage(),
		ImageID:      st.ImageRef, // the kubelet's choice: the digest, not the ID
		LogPath:      st.LogPath,
	}
	if n, err := strconv.ParseInt(st.Annotations[spec.AnnotationRestartCount], 10, 32); err == nil {
		out.RestartCount = int32(n)
	}
	out.GracePeriod = gracePeriod(st.Annotations)
	if _, podds := st.Annotations[pod.AnnotationStartTime]; podds { // the kubelet computes another
		out.Hash = st.Annotations[spec.AnnotationHash]
	}
	out.ContentHashes = pod.ParseContentHashes(st.Labels[spec.LabelPodNamespace], st.Annotations[pod.AnnotationObjects])
	if u := st.GetUser().GetLinux(); u != nil {
		out.User = &pod.User{UID: u.Uid, GID: u.Gid, SupplementalGroups: u.SupplementalGroups}
	}
	if r := st.GetResources().GetLinux(); r != nil {
		out.Resources = &pod.ContainerResources{
			CPUShares: r.CpuShares, CPUQuota: r.CpuQuota, CPUPeriod: r.CpuPeriod, MemoryLimitInBytes: r.MemoryLimitInBytes,
			MemoryQoS: spec.MemoryQoS(r),
		}
	}
	if out.State != pod.ContainerCreated && st.StartedAt > 0 {
		out.StartedAt = time.Unix(0, st.StartedAt)
	}
	if out.State == pod.ContainerExited {
		out.FinishedAt = time.Unix(0, st.FinishedAt)
		out.ExitCode, out.Reason, out.Message = st.ExitCode, st.Reason, st.Message
		out.NeverRan = neverRan(st)
	}
	return out
}

// gracePeriod returns the pod's grace period at the creation of the container: that of its
// deletion, if that had begun, or its own. It is nil if neither is known.
func gracePeriod(annotations map[string]string) *time.Duration {
	for _, key := range []string{spec.AnnotationDeletionGrace, spec.AnnotationTerminationPeriod} {
		if n, err := strconv.ParseInt(annotations[key], 10, 64); err == nil {
			grace := pod.GracePeriod(n)
			return &grace
		}
	}
	return nil
}

func containerState(s runtimeapi.ContainerState) pod.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return pod.ContainerCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return pod.ContainerRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return pod.ContainerExited
	default:
		return pod.ContainerUnknown
	}
}

// taskNotCreatedPrefix is how containerd's message begins if a start failed before runc had
// made the container (internal/cri/server/container_start.go). CRI has no field for it: reason
// and code are the same for every failed start, including one that was interrupted when the
// process may have run for a moment.
const taskNotCreatedPrefix = "failed to create containerd task: "

// neverRan says that an exited container certainly never had a process.
func neverRan(st *runtimeapi.ContainerStatus) bool {
	return st.StartedAt <= 0 && st.Reason == pod.ReasonStartError && strings.HasPrefix(st.Message, taskNotCreatedPrefix)
}
