package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"path/filepath"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	containersapi "github.com/containerd/containerd/api/services/containers/v1"
	sandboxapi "github.com/containerd/containerd/api/services/sandbox/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Containerd asks containerd over a connection to its socket. The first record
// of a sandbox is made before anything else of it, that of a container before
// its task.
func Containerd(conn grpc.ClientConnInterface) Records {
	sandboxes, containers, tasks := sandboxapi.NewStoreClient(conn), containersapi.NewContainersClient(conn), tasksapi.NewTasksClient(conn)
	return func(ctx context.Context, namespace, id string) (Record, error) {
		ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
		_, noBox := sandboxes.Get(ctx, &sandboxapi.StoreGetRequest{SandboxID: id})
		container, noContainer := containers.Get(ctx, &containersapi.GetContainerRequest{ID: id})
		_, noTask := tasks.Get(ctx, &tasksapi.GetRequest{ContainerID: id})
		r := Record{
			Known: noBox == nil || noContainer == nil, Task: noTask == nil,
			Sandbox: container.GetContainer().GetSandbox(),
		}
		return r, errors.Join(unlessNotFound(noBox), unlessNotFound(noContainer), unlessNotFound(noTask))
	}
}

func unlessNotFound(err error) error {
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// shimSocket is where a sandbox's shim listens (containerd's pkg/shim,
// CreateSocketAddress).
func (s *Settings) shimSocket(namespace, sandbox string) string {
	sum := sha256.Sum256([]byte(filepath.Join(Socket(s.StateDir), namespace, sandbox)))
	return filepath.Join(s.shimDir(), hex.EncodeToString(sum[:]))
}

// forget waits until a shim has seen a container end and has it delete what it
// remembers. A shim that is gone, or does not know it, is no error.
func forget(ctx context.Context, socket, namespace, id string) error {
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
