package archive

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	transferapi "github.com/containerd/containerd/api/services/transfer/v1"
	"github.com/containerd/containerd/api/types"
	transfertypes "github.com/containerd/containerd/api/types/transfer"
	"github.com/containerd/platforms"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"podd/internal/imageref"
	"podd/internal/pluginconn"
	"podd/internal/pod"
)

const (
	// criNamespace is containerd's namespace of everything visible through CRI.
	criNamespace = "k8s.io"
	// nameless is the prefix with which containerd completes the tag of an image
	// that its archive does not name in full.
	nameless = "podd.invalid/nameless"
)

// pinnedLabel makes CRI report an image as pinned, which excludes it from the
// kubelet's and podd's garbage collection. Key and value are containerd's; it
// ignores other values.
var pinnedLabel = map[string]string{"io.cri-containerd.pinned": "pinned"}

// Containerd imports archives into containerd through its own API, since CRI
// has no call for that. containerd does the work: podd streams the file to its
// transfer service and receives the names. (Its client library would do the
// same, but cost podd 4.3 MB of binary and 2.6 MB of RSS.)
type Containerd struct{ conn *grpc.ClientConn }

// DialContainerd returns a client of containerd's socket; it connects with the
// first call.
func DialContainerd(socket string) (*Containerd, error) {
	conn, err := pluginconn.Dial(socket, pod.MaxRuntimeMessage)
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", socket, err)
	}
	return &Containerd{conn: conn}, nil
}

// Import imports an OCI or docker archive, plain, gzip or zstd, for this
// machine's platform, pins its images and unpacks them. It returns their names
// and blocks for as long as that takes. An *InvalidError blames the file.
func (c *Containerd) Import(ctx context.Context, file string) ([]string, error) {
	refs, err := c.importOnce(ctx, file)
	if status.Code(err) == codes.NotFound && ctx.Err() == nil {
		// Content that is not found may be missing in the archive, or was
		// removed by containerd's own garbage collection, which other imports
		// and removals trigger.
		refs, err = c.importOnce(ctx, file)
	}
	if _, blamed := errors.AsType[*InvalidError](err); err != nil && !blamed {
		err = classifyError(file, err)
	}
	return refs, err
}

// importOnce returns containerd's errors unchanged.
func (c *Containerd) importOnce(ctx context.Context, file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &InvalidError{File: file, Reason: "cannot be read: " + err.Error()}
	}
	defer f.Close()
	// Ends the streams on every return.
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", criNamespace))
	defer cancel()

	content, err := openStream(ctx, c.conn, "import")
	if err != nil {
		return nil, err
	}
	progress, err := openStream(ctx, c.conn, "progress")
	if err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() { sent <- content.send(ctx, f) }()
	saved := make(chan []string, 1)
	go func() { saved <- progress.savedImages() }()

	request, err := transferRequest(content.id, progress.id)
	if err != nil {
		return nil, err
	}
	_, err = transferapi.NewTransferClient(c.conn).Transfer(ctx, request)
	if err != nil {
		cancel()
		if sendErr := <-sent; sendErr != nil && errors.Is(sendErr, errReadArchive) {
			err = sendErr
		}
		<-saved
		return nil, err
	}
	return c.normalizeNames(ctx, file, <-saved)
}

// transferRequest is the request to import a stream into the image store.
func transferRequest(content, progress string) (*transferapi.TransferRequest, error) {
	p := platforms.DefaultSpec()
	here := &types.Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}
	source, err := pack(&transfertypes.ImageImportStream{Stream: content})
	if err != nil {
		return nil, err
	}
	destination, err := pack(&transfertypes.ImageStore{
		Labels:          pinnedLabel,
		Platforms:       []*types.Platform{here},
		ExtraReferences: []*transfertypes.ImageReference{{Name: nameless, IsPrefix: true, AllowOverwrite: true}},
		Unpacks:         []*transfertypes.UnpackConfiguration{{Platform: here}},
	})
	if err != nil {
		return nil, err
	}
	return &transferapi.TransferRequest{
		Source: source, Destination: destination,
		Options: &transferapi.TransferOptions{ProgressStream: progress},
	}, nil
}

// pack wraps m in an Any as containerd does, with the bare name as type URL.
func pack(m proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(proto.MessageName(m)), Value: value}, nil
}

// normalizeNames gives images the names that pods use (busybox:1 becomes its full name),
// and rejects an archive without names.
func (c *Containerd) normalizeNames(ctx context.Context, file string, saved []string) ([]string, error) {
	store := imagesapi.NewImagesClient(c.conn)
	var refs []string
	for _, ref := range saved {
		full := fullName(ref)
		if full != ref {
			if err := rename(ctx, store, ref, full); err != nil {
				return nil, fmt.Errorf("name image %s: %w", ref, err)
			}
		}
		if full != "" {
			refs = append(refs, full)
		}
	}
	if len(refs) == 0 {
		return nil, &InvalidError{File: file, Reason: "names no image by its full name (registry/name:tag); save it with that name: docker save NAME, podman save --format oci-archive NAME, or skopeo copy … oci-archive:FILE:NAME"}
	}
	return refs, nil
}

// fullName returns the full name of an image from its name in an archive; empty
// if that is not an image reference.
func fullName(ref string) string {
	if strings.HasPrefix(ref, nameless) {
		return ""
	}
	return imageref.Full(ref)
}

// rename renames an image, or removes it if to is empty.
func rename(ctx context.Context, store imagesapi.ImagesClient, from, to string) error {
	if to != "" {
		old, err := store.Get(ctx, &imagesapi.GetImageRequest{Name: from})
		if err != nil {
			return err
		}
		image := &imagesapi.Image{Name: to, Labels: old.Image.Labels, Target: old.Image.Target}
		_, err = store.Create(ctx, &imagesapi.CreateImageRequest{Image: image})
		if status.Code(err) == codes.AlreadyExists {
			_, err = store.Update(ctx, &imagesapi.UpdateImageRequest{Image: image})
		}
		if err != nil {
			return err
		}
	}
	_, err := store.Delete(ctx, &imagesapi.DeleteImageRequest{Name: from})
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}

// classifyError classifies errors of an import: if containerd is unavailable or the
// disk is full, the file is not at fault; nearly all others are.
func classifyError(file string, err error) error {
	text := status.Convert(err).Message()
	switch code := status.Code(err); {
	case errors.Is(err, errReadArchive):
		return &InvalidError{File: file, Reason: "cannot be read: " + err.Error()}
	case code == codes.Unavailable, code == codes.Canceled, code == codes.DeadlineExceeded,
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("import %s: containerd does not respond: %w", file, err)
	case code == codes.Unimplemented:
		return fmt.Errorf("import %s: this runtime has no transfer service, so archives must be imported by its own tools: %w", file, err)
	case strings.Contains(text, "no space left on device"):
		return fmt.Errorf("import %s: the disk is full: %w", file, err)
	case strings.Contains(text, "might be filtered out"), strings.Contains(text, "no match for platform"):
		return &InvalidError{File: file, Reason: "has no image for " + platforms.DefaultString() + " (" + text + ")"}
	default:
		return &InvalidError{File: file, Reason: "is not a complete OCI or docker archive (" + text + "); save the image again, or remove the file"}
	}
}
