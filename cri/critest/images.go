package critest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is one of the Server's images.
type Image struct {
	// Ref as it was named: localhost/app:1.
	Ref  string
	Size uint64
	// UID and Username are the image's own user; both empty is root.
	UID      *int64
	Username string
	Pinned   bool
}

func (i *Image) id() string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("config "+i.Ref))) }

func (i *Image) digest() string {
	name, _, _ := strings.Cut(i.Ref, "@")
	if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") {
		name = name[:at]
	}
	return fmt.Sprintf("%s@sha256:%x", name, sha256.Sum256([]byte("manifest "+i.Ref)))
}

// Pull is the answer of the Server's registry for a reference.
type Pull struct {
	// Takes is how long the pull lasts.
	Takes time.Duration
	// If Code is set, the pull fails with Code and Text after that time.
	Code codes.Code
	Text string
	// Image is the pulled image; its Ref may be empty.
	Image Image
}

// AddImage makes an image present, and returns its ID.
func (s *Server) AddImage(ref string) string { return s.PutImage(Image{Ref: ref, Size: 1 << 20}) }

// PutImage makes an image present, and returns its ID.
func (s *Server) PutImage(i Image) string {
	s.rt.Lock()
	defer s.rt.Unlock()
	i.Ref = normal(i.Ref)
	s.images[i.id()] = &i
	return i.id()
}

// DropImage removes an image without telling anybody.
func (s *Server) DropImage(ref string) {
	s.rt.Lock()
	defer s.rt.Unlock()
	if i := s.imageLocked(ref); i != nil {
		delete(s.images, i.id())
	}
}

// Serve sets how the registry answers for a reference. Every other reference does not
// exist.
func (s *Server) Serve(ref string, p Pull) {
	s.rt.Lock()
	defer s.rt.Unlock()
	s.registry[normal(ref)] = p
}

// normal adds the implied tag to a reference without one.
func normal(ref string) string {
	if strings.Contains(ref, "@") || strings.LastIndex(ref, ":") > strings.LastIndex(ref, "/") {
		return ref
	}
	return ref + ":latest"
}

// imageLocked finds an image by reference, digest or ID.
func (s *Server) imageLocked(ref string) *Image {
	if i := s.images[ref]; i != nil {
		return i
	}
	for _, i := range s.images {
		if i.Ref == normal(ref) || i.digest() == ref {
			return i
		}
	}
	return nil
}

// imageService implements CRI's other service.
type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	s *Server
}

func (i *Image) wire() *runtimeapi.Image {
	out := &runtimeapi.Image{Id: i.id(), RepoTags: []string{i.Ref}, RepoDigests: []string{i.digest()}, Size: i.Size, Username: i.Username, Pinned: i.Pinned}
	if i.UID != nil {
		out.Uid = &runtimeapi.Int64Value{Value: *i.UID}
	}
	return out
}

func (v *imageService) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	v.s.rt.Lock()
	defer v.s.rt.Unlock()
	if i := v.s.imageLocked(r.GetImage().GetImage()); i != nil {
		return &runtimeapi.ImageStatusResponse{Image: i.wire()}, nil
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

func (v *imageService) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref := normal(r.GetImage().GetImage())
	v.s.rt.Lock()
	p, ok := v.s.registry[ref]
	v.s.rt.Unlock()
	if !ok {
		return nil, status.Errorf(codes.NotFound, "failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", ref, ref, ref)
	}
	if p.Takes > 0 {
		timer := time.NewTimer(p.Takes)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if p.Code != codes.OK {
		return nil, status.Error(p.Code, p.Text)
	}
	p.Image.Ref = ref
	return &runtimeapi.PullImageResponse{ImageRef: v.s.PutImage(p.Image)}, nil
}

func (v *imageService) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	v.s.rt.Lock()
	defer v.s.rt.Unlock()
	out := &runtimeapi.ListImagesResponse{}
	for _, i := range v.s.images {
		out.Images = append(out.Images, i.wire())
	}
	slices.SortFunc(out.Images, func(a, b *runtimeapi.Image) int { return strings.Compare(a.Id, b.Id) })
	return out, nil
}

func (v *imageService) RemoveImage(_ context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	v.s.DropImage(r.GetImage().GetImage())
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (v *imageService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	v.s.rt.Lock()
	defer v.s.rt.Unlock()
	var used uint64
	for _, i := range v.s.images {
		used += i.Size
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(),
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &runtimeapi.UInt64Value{Value: used},
	}}}, nil
}
