package nodestatus

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"podd/internal/logonce"
	"podd/internal/pod"
)

// maxImageNames bounds the names of one image (pkg/kubelet/nodestatus,
// MaxNamesPerImageInNodeStatus).
const maxImageNames = 5

// ImagesConfig configures Images.
type ImagesConfig struct {
	// List asks the runtime for its images.
	List func(ctx context.Context) ([]*pod.Image, error)
	// Max is nodeStatusMaxImages; -1 means no limit.
	Max int
	// MaxAge is the age at which podd asks the runtime again although podd has changed nothing:
	// others may pull and remove images, too.
	MaxAge time.Duration
	Log    *slog.Logger
}

// Images are the images that the Node shows. The scheduler prefers nodes that have a pod's
// images. podd asks the runtime after a change of its own, and otherwise rarely. The methods
// may be called by any goroutine at any time.
type Images struct {
	cfg ImagesConfig

	mu     sync.Mutex
	images []v1.ContainerImage
	// listedAt is when podd last asked for the images; zero if something has changed since.
	listedAt time.Time
	failure  logonce.Failure
}

// NewImages returns Images that have not been listed yet.
func NewImages(cfg ImagesConfig) *Images {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Images{cfg: cfg}
}

// Invalidate reports that an image came or went. It never blocks for long.
func (i *Images) Invalidate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.listedAt = time.Time{}
}

// Current returns the images, largest first. If the runtime does not respond, it returns the last
// known ones. It may block for as long as List.
func (i *Images) Current(ctx context.Context) []v1.ContainerImage {
	i.mu.Lock()
	images, listedAt := i.images, i.listedAt
	began := time.Now()
	if !listedAt.IsZero() && began.Sub(listedAt) < i.cfg.MaxAge {
		i.mu.Unlock()
		return images
	}
	i.listedAt = began // changes after this point may be missing
	i.mu.Unlock()
	all, err := i.cfg.List(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.listedAt = time.Time{}
		if ctx.Err() == nil && i.failure.IsNew(err) {
			i.cfg.Log.Warn("cannot list the images for the node's status: it shows the last known ones", "error", err)
		}
		return i.images
	}
	i.failure.Recovered()
	i.images = containerImages(all, i.cfg.Max)
	return i.images
}

// containerImages converts images to the API's type. Their order depends only on the images: an
// order that changed by itself would be sent again and again.
func containerImages(all []*pod.Image, bound int) []v1.ContainerImage {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *pod.Image) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.ID, b.ID))
	})
	if bound >= 0 && len(all) > bound {
		all = all[:bound]
	}
	out := make([]v1.ContainerImage, 0, len(all))
	for _, image := range all {
		names := slices.Concat(slices.Sorted(slices.Values(image.Digests)), slices.Sorted(slices.Values(image.Tags)))
		out = append(out, v1.ContainerImage{Names: names[:min(len(names), maxImageNames)], SizeBytes: int64(image.Size)})
	}
	return out
}
