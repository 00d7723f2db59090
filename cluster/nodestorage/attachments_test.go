package nodestorage

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

type attachments map[string]*storagev1.VolumeAttachment

func (a attachments) VolumeAttachment(_ context.Context, name string) (*storagev1.VolumeAttachment, error) {
	if of := a[name]; of != nil {
		return of, nil
	}
	return nil, errors.New("there is none")
}

const disk = v1.UniqueVolumeName("kubernetes.io/csi/d^1")

func nodeWith(inUse, attached bool) *v1.Node {
	n := &v1.Node{}
	if inUse {
		n.Status.VolumesInUse = []v1.UniqueVolumeName{"kubernetes.io/csi/d^2", disk}
	}
	if attached {
		n.Status.VolumesAttached = []v1.AttachedVolume{{Name: "kubernetes.io/csi/d^2"}, {Name: disk}}
	}
	return n
}

func attachment(change func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	of := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}}
	change(of)
	return of
}

func isAttached(of *storagev1.VolumeAttachment) {
	of.Status.Attached, of.Status.AttachmentMetadata = true, map[string]string{"device": "/dev/x"}
}

func code(of codes.Code) *int32 {
	n := int32(of)
	return &n
}

// Nobody waits any more, so that nobody is asked why.
func TestAWaitThatIsGivenUpAsksNothing(t *testing.T) {
	a := NewAttachments(nil) // which would panic
	a.ObserveNode(nodeWith(true, false))
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the pod is gone")
	cancel(gone)
	if _, err := a.WaitForAttach(ctx, disk, "csi-1"); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestAVolumeIsAttachedOnceTheApiserverKnowsThatItIsInUse(t *testing.T) {
	for name, c := range map[string]struct {
		seen []*v1.Node
		of   *storagev1.VolumeAttachment
		want string // part of the error
		full bool   // pod.ErrAttachLimit
	}{
		"attached":        {seen: []*v1.Node{nodeWith(false, false), nodeWith(true, false), nodeWith(true, true)}, of: attachment(isAttached)},
		"attached before": {seen: []*v1.Node{nodeWith(false, true), nodeWith(true, true)}, of: attachment(isAttached)},
		"no Node":         {of: attachment(isAttached), want: "waiting for the Node's status.volumesInUse to be written: context deadline exceeded"},
		"not in use":      {seen: []*v1.Node{nodeWith(false, true)}, of: attachment(isAttached), want: "waiting for the Node's status.volumesInUse to be written: context deadline exceeded"},
		"not attached":    {seen: []*v1.Node{nodeWith(true, false)}, of: attachment(isAttached), want: "status.volumesAttached does not have it: context deadline exceeded"},
		"refused": {seen: []*v1.Node{nodeWith(true, false)}, want: "does not have it: context deadline exceeded: no such disk", of: attachment(func(of *storagev1.VolumeAttachment) {
			of.Status.AttachError = &storagev1.VolumeError{Message: "no such disk", ErrorCode: code(codes.NotFound)}
		})},
		"one too many": {seen: []*v1.Node{nodeWith(true, false)}, want: "does not have it: context deadline exceeded: the node has no room for another volume of this driver: no slots", of: attachment(func(of *storagev1.VolumeAttachment) {
			of.Status.AttachError = &storagev1.VolumeError{Message: "no slots", ErrorCode: code(codes.ResourceExhausted)}
		}), full: true},
		"without an attachment": {seen: []*v1.Node{nodeWith(true, true)}, want: "has GET error for volume attachment csi-1: there is none"},
		"half way":              {seen: []*v1.Node{nodeWith(true, true)}, of: attachment(func(*storagev1.VolumeAttachment) {}), want: "is not attached for volume attachment csi-1"},
		"failed": {seen: []*v1.Node{nodeWith(true, true)}, want: "no more slots", of: attachment(func(of *storagev1.VolumeAttachment) {
			of.Status.AttachError = &storagev1.VolumeError{Message: "no more slots"}
		})},
		"on its way out": {seen: []*v1.Node{nodeWith(true, true)}, want: "csi-1 is being deleted", of: attachment(func(of *storagev1.VolumeAttachment) {
			isAttached(of)
			of.DeletionTimestamp = &metav1.Time{}
		})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := attachments{}
				if c.of != nil {
					client["csi-1"] = c.of
				}
				a := NewAttachments(client)
				go func() {
					for _, n := range c.seen {
						time.Sleep(time.Second)
						a.ObserveNode(n)
					}
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				metadata, err := a.WaitForAttach(ctx, disk, "csi-1")
				switch {
				case c.want == "" && (err != nil || metadata["device"] != "/dev/x"):
					t.Errorf("got %v, %v", metadata, err)
				case c.want == "" && time.Since(began) != time.Duration(len(c.seen))*time.Second:
					t.Errorf("attached after %s", time.Since(began))
				case errors.Is(err, pod.ErrAttachLimit) != c.full:
					t.Errorf("got %v: of class ErrAttachLimit %v", err, !c.full)
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got %v, want %s", err, c.want)
				}
			})
		})
	}
}
