// Command csidriver is a CSI driver for tests, with its registrar: upstream's mock
// driver (which was csi-test's, and checks what it is asked), around which there are
// real mounts, since it makes none. A volume is a directory below -data, or a link to a
// device there, which stays when the volume goes.
//
// Its module is its own: nothing of it is part of podd.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"
)

func main() {
	log.SetFlags(log.Lmicroseconds)
	name := flag.String("name", "mock.csi.example.com", "the driver's name")
	dir := flag.String("dir", "", "where its socket is made")
	data := flag.String("data", "", "where volumes are kept")
	registry := flag.String("registry", "", "plugins_registry")
	attach := flag.Bool("attach", false, "volumes must be attached first, at most three; the node has a place in a topology")
	flag.Parse()
	d := &driver{data: *data}
	limit := int64(0)
	if *attach {
		limit = 3
	}
	d.Service = service.New(service.Config{DriverName: *name, DisableAttach: !*attach, AttachLimit: limit, EnableTopology: *attach, NodeExpansionRequired: true, PermissiveTargetPath: true, IO: d})
	endpoint := filepath.Join(*dir, "csi.sock")
	plugin := grpc.NewServer(grpc.UnaryInterceptor(tell))
	csi.RegisterIdentityServer(plugin, d)
	csi.RegisterNodeServer(plugin, d)
	if *attach {
		csi.RegisterControllerServer(plugin, d)
	}
	registrar := grpc.NewServer(grpc.UnaryInterceptor(tell))
	registration.RegisterRegistrationServer(registrar, &announced{info: &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: *name, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"},
	}})
	var work sync.WaitGroup
	serve(&work, plugin, endpoint)
	serve(&work, registrar, filepath.Join(*registry, *name+"-reg.sock"))
	end := make(chan os.Signal, 1)
	signal.Notify(end, unix.SIGTERM)
	<-end
	registrar.Stop()
	plugin.Stop()
	work.Wait()
}

// serve listens on a socket, instead of whoever did before a crash.
func serve(work *sync.WaitGroup, s *grpc.Server, path string) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	work.Go(func() { _ = s.Serve(l) })
}

// tell logs a call, without what it is about but its volume.
func tell(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	answer, err := handler(ctx, request)
	volume := ""
	if v, ok := request.(interface{ GetVolumeId() string }); ok {
		volume = v.GetVolumeId()
	}
	log.Printf("%s %s: %v%s", filepath.Base(info.FullMethod), volume, err, tokensOf(request))
	return answer, err
}

// tokensOf is what a request has of tokens of service accounts: their audiences.
func tokensOf(request any) string {
	v, ok := request.(interface{ GetVolumeContext() map[string]string })
	if !ok {
		return ""
	}
	var tokens map[string]struct{ Token, ExpirationTimestamp string }
	if json.Unmarshal([]byte(v.GetVolumeContext()["csi.storage.k8s.io/serviceAccount.tokens"]), &tokens) != nil {
		return ""
	}
	text := ""
	for audience, token := range tokens {
		text += fmt.Sprintf(" token for %q: %v until %v", audience, strings.HasPrefix(token.Token, "eyJ"), token.ExpirationTimestamp != "")
	}
	return text
}

// announced is the registrar.
type announced struct {
	registration.UnimplementedRegistrationServer
	info *registration.PluginInfo
}

func (a *announced) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return a.info, nil
}

func (a *announced) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %v %s", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

// driver is the mock with mounts. It is the mock's service.DirIO too.
type driver struct {
	service.Service
	data string
}

func (d *driver) NodeStageVolume(ctx context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	answer, err := d.Service.NodeStageVolume(ctx, q)
	if err == nil && q.VolumeCapability.GetBlock() == nil {
		err = d.bind(d.volume(q.VolumeId), q.StagingTargetPath)
	}
	return answer, err
}

func (d *driver) NodeUnstageVolume(ctx context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := unmount(q.StagingTargetPath); err != nil {
		return nil, err
	}
	return d.Service.NodeUnstageVolume(ctx, q)
}

func (d *driver) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (answer *csi.NodePublishVolumeResponse, err error) {
	if q.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" {
		answer = &csi.NodePublishVolumeResponse{} // the mock of Kubernetes 1.37 dereferences nil for an inline volume
	} else if answer, err = d.Service.NodePublishVolume(ctx, q); err != nil {
		return nil, err
	}
	if q.VolumeCapability.GetBlock() != nil {
		return answer, d.bindDevice(d.volume(q.VolumeId), q.TargetPath)
	}
	from := q.StagingTargetPath
	if from == "" {
		from = d.volume(q.VolumeId)
	}
	return answer, d.bind(from, q.TargetPath)
}

func (d *driver) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := d.RemoveAll(q.TargetPath); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	answer, err := d.Service.NodeUnpublishVolume(ctx, q)
	if status.Code(err) == codes.NotFound && strings.HasPrefix(q.VolumeId, "csi-") {
		return &csi.NodeUnpublishVolumeResponse{}, nil // the mock does not know inline volumes
	}
	return answer, err
}

// NodeGetInfo is the mock's; a file beside the volumes may have another limit of them.
func (d *driver) NodeGetInfo(ctx context.Context, q *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	answer, err := d.Service.NodeGetInfo(ctx, q)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(d.data + ".limit")
	if errors.Is(err, fs.ErrNotExist) {
		return answer, nil
	}
	if err == nil {
		answer.MaxVolumesPerNode, err = strconv.ParseInt(string(text), 10, 64)
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return answer, nil
}

// NodeGetVolumeStats is the mock's, which knows a volume's size alone, with what lies in
// the volume. Its condition is bad while there is a file broken beside it, which says
// why.
func (d *driver) NodeGetVolumeStats(ctx context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	answer, err := d.Service.NodeGetVolumeStats(ctx, q)
	if err != nil {
		return nil, err
	}
	used, inodes, err := size(d.volume(q.VolumeId))
	if errors.Is(err, unix.ENOTDIR) {
		return answer, nil // a device, whose use only the pod knows
	}
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	for _, u := range answer.Usage {
		u.Used, u.Available = used, u.Total-used
	}
	answer.Usage = append(answer.Usage, &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: 1000, Used: inodes, Available: 1000 - inodes})
	return answer, nil
}

// size is what the files of a directory have in them, and how many there are.
func size(dir string) (bytes, files int64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, 0, err
		}
		bytes, files = bytes+info.Size(), files+1
	}
	return bytes, files, err
}

// volume is where a volume's content is.
func (d *driver) volume(id string) string { return filepath.Join(d.data, id) }

func (d *driver) bind(from, to string) error {
	for _, dir := range []string{from, to} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
	}
	if same(from, to) {
		return nil // it is mounted
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return status.Error(codes.Internal, fmt.Sprintf("bind %s to %s: %v", from, to, err))
	}
	return nil
}

// bindDevice puts a device where the mock has made a directory.
func (d *driver) bindDevice(link, to string) error {
	device, err := filepath.EvalSymlinks(link)
	if err == nil && same(device, to) {
		return nil // it is there
	}
	if err == nil {
		err = os.Remove(to)
	}
	if err == nil {
		err = os.WriteFile(to, nil, 0o600)
	}
	if err == nil {
		err = unix.Mount(device, to, "", unix.MS_BIND, "")
	}
	if err != nil {
		return status.Error(codes.Internal, fmt.Sprintf("publish %s at %s: %v", link, to, err))
	}
	return nil
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

func unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return status.Error(codes.Internal, fmt.Sprintf("unmount %s: %v", path, err))
	}
	return nil
}

// DirExists, Mkdir, RemoveAll and Rename are what the mock does with directories;
// nothing is ever removed through a mount.
func (d *driver) DirExists(path string) (bool, error) {
	_, err := os.Stat(path) // a device is published as a file
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (d *driver) Mkdir(path string) error { return os.Mkdir(path, 0o755) }

func (d *driver) RemoveAll(path string) error {
	if err := unmount(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d *driver) Rename(from, to string) error { return os.Rename(from, to) }
