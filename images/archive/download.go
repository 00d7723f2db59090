package archive

import (
	"context"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	"google.golang.org/grpc/metadata"
)

// DownloadProgress returns how many bytes of containerd's current downloads have been
// received, and their total. Layers that are not being downloaded yet are in
// neither, so the total grows.
func (c *Containerd) DownloadProgress(ctx context.Context) (received, total int64, err error) {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", criNamespace)
	r, err := contentapi.NewContentClient(c.conn).ListStatuses(ctx, &contentapi.ListStatusesRequest{})
	if err != nil {
		return 0, 0, err
	}
	for _, s := range r.Statuses {
		received, total = received+s.Offset, total+max(s.Total, s.Offset)
	}
	return received, total, nil
}
