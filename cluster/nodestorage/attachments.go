package nodestorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/pod"
)

// AttachmentClient reads a VolumeAttachment of this node. It blocks until the apiserver has
// answered.
type AttachmentClient interface {
	VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
}

// Attachments knows which volumes the cluster has attached to this node. Create it with
// NewAttachments. Any goroutine may call its methods.
type Attachments struct {
	client AttachmentClient

	mu          sync.Mutex
	node        *v1.Node      // the newest version seen
	nodeChanged chan struct{} // closed and replaced with each version
}

// NewAttachments returns Attachments that have not seen the Node yet.
func NewAttachments(client AttachmentClient) *Attachments {
	return &Attachments{client: client, nodeChanged: make(chan struct{})}
}

// ObserveNode takes a newer version of the Node. It does not block.
func (a *Attachments) ObserveNode(node *v1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.node = node
	close(a.nodeChanged)
	a.nodeChanged = make(chan struct{})
}

// Node returns the newest version of the Node that was passed to ObserveNode, or nil. It is
// read-only.
func (a *Attachments) Node() *v1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node
}

// WaitForAttach blocks until the apiserver knows that the volume is in use, and then until the
// cluster has attached it. It returns the metadata of its VolumeAttachment. The first wait is
// needed because a volume that the apiserver does not know to be in use may be detached at any
// time. Nothing is polled: WaitForAttach follows the Node. The errors are the kubelet's. If ctx
// ends the wait, the error names what WaitForAttach waited for, and why the cluster does not
// attach the volume, as far as the cluster says. It is of class pod.ErrAttachLimit if the node
// has too many volumes.
func (a *Attachments) WaitForAttach(ctx context.Context, volume v1.UniqueVolumeName, attachment string) (map[string]string, error) {
	err := a.waitForNodeStatus(ctx, func(s *v1.NodeStatus) bool { return slices.Contains(s.VolumesInUse, volume) })
	if err != nil {
		return nil, fmt.Errorf("volume %s: waiting for the Node's status.volumesInUse to be written: %w", volume, err)
	}
	err = a.waitForNodeStatus(ctx, func(s *v1.NodeStatus) bool {
		return slices.ContainsFunc(s.VolumesAttached, func(v v1.AttachedVolume) bool { return v.Name == volume })
	})
	if err != nil {
		err = fmt.Errorf("volume %s: waiting for the cluster to attach it: the Node's status.volumesAttached does not have it: %w", volume, err)
		if refused := a.attachError(ctx, attachment); refused != nil {
			err = fmt.Errorf("%w: %w", err, refused)
		}
		return nil, err
	}
	of, err := a.client.VolumeAttachment(ctx, attachment)
	if err != nil {
		return nil, fmt.Errorf("volume %s has GET error for volume attachment %s: %w", volume, attachment, err)
	}
	return of.Status.AttachmentMetadata, checkAttached(of, volume)
}

func (a *Attachments) waitForNodeStatus(ctx context.Context, done func(*v1.NodeStatus) bool) error {
	for {
		a.mu.Lock()
		node, changed := a.node, a.nodeChanged
		a.mu.Unlock()
		if node != nil && done(&node.Status) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// attachError returns the reason why the cluster has not attached a volume by ctx's deadline; nil
// if it gives none.
func (a *Attachments) attachError(ctx context.Context, attachment string) error {
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil // nobody waits for the volume any more
	}
	of, err := a.client.VolumeAttachment(context.WithoutCancel(ctx), attachment)
	if err != nil || of.Status.AttachError == nil {
		return nil // the wait's error says enough
	}
	said := of.Status.AttachError
	if code := said.ErrorCode; code != nil && *code == int32(codes.ResourceExhausted) {
		return fmt.Errorf("%w: %s", pod.ErrAttachLimit, said.Message)
	}
	return errors.New(said.Message)
}

// checkAttached returns an error if the VolumeAttachment says that the volume is not attached.
func checkAttached(of *storagev1.VolumeAttachment, volume v1.UniqueVolumeName) error {
	switch {
	case of.DeletionTimestamp != nil:
		return fmt.Errorf("volume %s: its volume attachment %s is being deleted", volume, of.Name)
	case of.Status.Attached:
		return nil
	case of.Status.AttachError != nil:
		return errors.New(of.Status.AttachError.Message)
	}
	return fmt.Errorf("volume %s is not attached for volume attachment %s", volume, of.Name)
}
