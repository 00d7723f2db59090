package main

import (
	"context"
	"path/filepath"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

func init() {
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn: func(ic *plugin.InitContext) (any, error) {
			publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
			if err != nil {
				return nil, err
			}
			sd, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
			if err != nil {
				return nil, err
			}
			inner, err := task.NewTaskService(ic.Context, publisher.(shim.Publisher), sd.(shutdown.Service))
			if err != nil {
				return nil, err
			}
			return taskService{inner}, nil
		},
	})
}

// taskService is containerd's service of a shim. It detaches a container's file system
// from the node's mount namespace once the container has it.
//
// The mounts of all containers slow down every start. A new mount namespace is a copy of the
// node's, and runc, containerd and systemd read the whole table, where overlays have the
// longest lines. With 1,000 pods that was most of the extra time of a start compared with 50
// pods. The container's own namespace keeps its file system mounted for as long as a process is
// in it. To look from outside, use /proc/PID/root. The code that ends a container unmounts the
// directory only if something is mounted there.
type taskService struct{ taskAPI.TTRPCTaskService }

// Create makes a container. When the call returns, the container's init process has changed its
// root and waits.
func (s taskService) Create(ctx context.Context, r *taskAPI.CreateTaskRequest) (*taskAPI.CreateTaskResponse, error) {
	answer, err := s.TTRPCTaskService.Create(ctx, r)
	if err != nil || len(r.Rootfs) == 0 {
		return answer, err
	}
	rootfs := filepath.Join(r.Bundle, "rootfs")
	if err := unix.Unmount(rootfs, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		log.G(ctx).WithError(err).WithField("rootfs", rootfs).Warn("cannot detach the file system of a container: it stays in the node's mount table")
	}
	return answer, nil
}

func (s taskService) RegisterTTRPC(server *ttrpc.Server) error {
	taskAPI.RegisterTTRPCTaskService(server, s)
	return nil
}
