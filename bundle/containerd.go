package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	sandboxapi "github.com/containerd/containerd/api/services/sandbox/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pluginconn"
	"podd/internal/pod"
)

// Containerd queries containerd, and its CRI, over one connection. The first record of a
// sandbox is made before anything else of the sandbox; that of a container is made before
// its task.
type Containerd struct{ Conn grpc.ClientConnInterface }

// Record implements Runtime.
func (c Containerd) Record(ctx context.Context, namespace, id string) (Record, error) {
	ctx = withNamespace(ctx, namespace)
	_, noBox := sandboxapi.NewStoreClient(c.Conn).Get(ctx, &sandboxapi.StoreGetRequest{SandboxID: id})
	container, noContainer := containersapi.NewContainersClient(c.Conn).Get(ctx, &containersapi.GetContainerRequest{ID: id})
	_, noTask := tasksapi.NewTasksClient(c.Conn).Get(ctx, &tasksapi.GetRequest{ContainerID: id})
	r := Record{
		Known: noBox == nil || noContainer == nil, Task: noTask == nil,
		Sandbox: container.GetContainer().GetSandbox(),
	}
	err := errors.Join(unlessNotFound(noBox), unlessNotFound(noContainer), unlessNotFound(noTask))
	// CRI never knew a container that somebody made with ctr.
	_, byCRI := container.GetContainer().GetLabels()["io.cri-containerd.kind"]
	if err == nil && namespace == criNamespace && (byCRI || noContainer != nil) {
		r.EndedInCRI, r.Unlisted, err = c.criState(ctx, id, noBox == nil)
	}
	return r, err
}

// criState says whether CRI considers a container ended, and whether CRI does not know it. It
// looks for a sandbox among the sandboxes first: containerd logs each ID that it does not find
// as an error.
func (c Containerd) criState(ctx context.Context, id string, sandbox bool) (endedInCRI, unknown bool, err error) {
	cri := runtimeapi.NewRuntimeServiceClient(c.Conn)
	asks := []func() (ended bool, err error){
		func() (bool, error) {
			r, err := cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
			return r.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, err
		},
		func() (bool, error) {
			_, err := cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
			return false, err
		},
	}
	if sandbox {
		slices.Reverse(asks)
	}
	for _, ask := range asks {
		ended, notFound := ask()
		if notFound == nil {
			return ended, false, nil
		}
		err = errors.Join(err, unlessNotFound(notFound))
	}
	return err == nil, err == nil, err
}

// Delete implements Runtime.
func (c Containerd) Delete(ctx context.Context, namespace, id string) error {
	ctx = withNamespace(ctx, namespace)
	tasks := tasksapi.NewTasksClient(c.Conn)
	if _, err := tasks.Kill(ctx, &tasksapi.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL), All: true}); unlessNotFound(err) != nil {
		return err
	}
	if _, err := tasks.Wait(ctx, &tasksapi.WaitRequest{ContainerID: id}); unlessNotFound(err) != nil {
		return err
	}
	if _, err := tasks.Delete(ctx, &tasksapi.DeleteTaskRequest{ContainerID: id}); unlessNotFound(err) != nil {
		return err
	}
	if _, unknown, err := c.criState(ctx, id, false); err != nil || !unknown {
		return err
	}
	return c.deleteRecords(ctx, id)
}

// deleteRecords deletes containerd's records of a sandbox that CRI lost: otherwise they and
// its snapshot would stay for ever.
func (c Containerd) deleteRecords(ctx context.Context, id string) error {
	containers := containersapi.NewContainersClient(c.Conn)
	var errs []error
	if r, err := containers.Get(ctx, &containersapi.GetContainerRequest{ID: id}); err == nil {
		_, err = containers.Delete(ctx, &containersapi.DeleteContainerRequest{ID: id})
		_, gone := snapshotsapi.NewSnapshotsClient(c.Conn).Remove(ctx, &snapshotsapi.RemoveSnapshotRequest{
			Snapshotter: r.Container.Snapshotter, Key: r.Container.SnapshotKey,
		})
		errs = append(errs, unlessNotFound(err), unlessNotFound(gone))
	}
	_, box := sandboxapi.NewStoreClient(c.Conn).Delete(ctx, &sandboxapi.StoreDeleteRequest{SandboxID: id})
	_, lease := leasesapi.NewLeasesClient(c.Conn).Delete(ctx, &leasesapi.DeleteRequest{ID: id})
	return errors.Join(append(errs, unlessNotFound(box), unlessNotFound(lease))...)
}

// Running returns the IDs of the containers and sandboxes that run according to CRI.
func (c Containerd) Running(ctx context.Context) (map[string]bool, error) {
	cri := runtimeapi.NewRuntimeServiceClient(c.Conn)
	containers, err := cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return nil, fmt.Errorf("list running containers: %w", err)
	}
	sandboxes, err := cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}})
	if err != nil {
		return nil, fmt.Errorf("list ready sandboxes: %w", err)
	}
	ids := map[string]bool{}
	for _, container := range containers.Containers {
		ids[container.Id] = true
	}
	for _, sandbox := range sandboxes.Items {
		ids[sandbox.Id] = true
	}
	return ids, nil
}

// Sandboxes returns the IDs of CRI's sandboxes, except these. They include sandboxes that
// CRI lists not yet or no longer, because a call is at work on them.
func (c Containerd) Sandboxes(ctx context.Context, except []string) ([]string, error) {
	boxes, err := c.sandboxes(ctx, except)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(boxes))
	for i, s := range boxes {
		ids[i] = s.SandboxID
	}
	return ids, nil
}

// SandboxAbandoned reports whether containerd, on its socket's endpoint, reserves a name for
// the sandbox with this ID although no call is creating it. It is false if that cannot
// be determined, and blocks for a second at most.
func SandboxAbandoned(ctx context.Context, endpoint, id string) bool {
	conn, err := pluginconn.Dial(endpoint, pod.MaxRuntimeMessage)
	if err != nil {
		return false
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lost, err := Containerd{Conn: conn}.createAbandoned(ctx, id)
	return err == nil && lost
}

// createAbandoned says whether a create of this sandbox has given up. A call that creates a
// sandbox has a lease with that ID, which it releases when it gives up. If its client has
// disconnected by then, it cannot delete its record, and therefore does not release the
// name either (in containerd's RunPodSandbox, the clean-up of the record uses the client's
// context; containerd/containerd#4604).
func (c Containerd) createAbandoned(ctx context.Context, id string) (bool, error) {
	r, err := leasesapi.NewLeasesClient(c.Conn).List(withNamespace(ctx, criNamespace), &leasesapi.ListRequest{Filters: []string{"id==" + id}})
	if err != nil {
		return false, fmt.Errorf("look for the lease of sandbox %s: %w", id, err)
	}
	if len(r.Leases) > 0 {
		return false, nil
	}
	_, unknown, err := c.criState(ctx, id, true)
	return unknown, err
}

// criNamespace is where containerd's CRI keeps its objects.
const criNamespace = "k8s.io"

func withNamespace(ctx context.Context, namespace string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

func unlessNotFound(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// shimSocket returns where a sandbox's shim listens (containerd's pkg/shim,
// CreateSocketAddress).
func (s *Settings) shimSocket(namespace, sandbox string) string {
	sum := sha256.Sum256([]byte(filepath.Join(Socket(s.StateDir), namespace, sandbox)))
	return filepath.Join(s.shimDir(), hex.EncodeToString(sum[:]))
}

// deleteTaskFromShim waits until a shim has seen a container end, and makes the shim delete what it
// remembers. It is no error if the shim is gone, or does not know the container.
func deleteTaskFromShim(ctx context.Context, socket, namespace, id string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	ctx = ttrpc.WithMetadata(ctx, ttrpc.MD{"containerd-namespace-ttrpc": []string{namespace}})
	tasks := taskapi.NewTTRPCTaskClient(client)
	if _, err := tasks.Wait(ctx, &taskapi.WaitRequest{ID: id}); err != nil {
		return unlessNotFound(err)
	}
	_, err = tasks.Delete(ctx, &taskapi.DeleteRequest{ID: id})
	return unlessNotFound(err)
}
