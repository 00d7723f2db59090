package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/images"
	"podd/images/archive"
	"podd/images/credentials"
	"podd/images/gc"
	"podd/internal/bytesize"
	"podd/internal/instance"
	"podd/internal/pod"
	"podd/logrotate"
	"podd/volumes/usage"
)

// minFreeBytes is how many bytes of a disk podd keeps free by removing unused images, regardless
// of the configured percentages.
const minFreeBytes = 1 << 30

// housekeeping holds the parts that limit disk usage. They are built with the images.
type housekeeping struct {
	collector *gc.Collector
	rotator   *logrotate.Rotator
}

// run starts the parts. The runtime must have responded.
func (h *housekeeping) run(ctx context.Context, g *errgroup.Group) {
	start(ctx, g, "image garbage collection", h.collector.Run)
	start(ctx, g, "log rotation", h.rotator.Run)
}

// newImages builds the image directory, the pulls with their credentials, image
// garbage collection and log rotation.
func (n *runtimeParts) newImages(waker images.Waker) error {
	importer, err := archive.DialContainerd(strings.TrimPrefix(n.client.Endpoint(), "unix://"))
	if err != nil {
		return err
	}
	n.nodeImages = n.newNodeImages()
	n.archives = n.newArchives(importer)
	n.housekeeping.collector = n.newCollector()
	n.housekeeping.rotator = n.newRotator()
	n.images = images.NewPuller(images.PullConfig{
		Runtime: imageService{n.client, n.nodeImages.Invalidate}, Waker: waker, Recorder: n.recorder, Keyring: n.keyring, Records: n.pullRecords, Archives: archives{n.archives, n.facts.importsArchives()}, Log: n.log, Registerer: n.registry,
		MaxParallel: n.cfg.ParallelImagePulls, LongPullsYieldSlot: n.cfg.ExemptLongPulls, QPS: float64(n.cfg.RegistryPullQPS), Burst: n.cfg.RegistryBurst,
		PodUsedImage: n.client.PodUsedImage, Progress: importer.DownloadProgress, DiskFull: n.housekeeping.collector.NotifyDiskFull,
	})
	return nil
}

// newArchives builds the image directory. It imports through containerd's own API, on the same
// socket as CRI. It connects at the first import, and stays connected as long as podd runs.
func (n *runtimeParts) newArchives(importer archive.Importer) *archive.Dir {
	dir := n.options.ImageDir
	if dir == "" {
		dir = filepath.Join(n.options.RuntimeRootDir, "images")
	}
	return archive.New(archive.Config{
		Dir: dir, ExtraDirs: []string{instance.PackagedImagesDir}, StateFile: filepath.Join(n.cfg.RootDir, "imported.json"),
		Importer: importer,
		Images:   n.client, Log: n.options.ImportLog, Registerer: n.registry, Progress: n.options.ImportProgress,
		Imported: func(refs []string) {
			n.images.Imported(refs)
			n.nodeImages.Invalidate()
			n.imported.Notify()
		},
	})
}

// newKeyring reads the configuration of credential provider plugins, if one exists.
func (n *Node) newKeyring() (*credentials.Keyring, error) {
	cfg := credentials.Config{RootDir: n.cfg.RootDir, Recorder: n.recorder, Log: n.log}
	cfg.Secret = func(ctx context.Context, p *v1.Pod, name string) (*v1.Secret, error) {
		return n.objects.SecretOf(ctx, p, p.Namespace, name)
	}
	var err error
	if cfg.WorkDir, err = os.Getwd(); err != nil {
		n.log.Info("cannot determine the working directory: not looking for registry credentials in it", "error", err)
	}
	if cfg.Home, err = os.UserHomeDir(); err != nil {
		n.log.Debug("cannot determine the home directory: not looking for registry credentials in it", "error", err)
	}
	if n.cfg.ImageCredentialProviderConfig != "" {
		plugins := credentials.ProvidersConfig{
			Config: n.cfg.ImageCredentialProviderConfig, BinDir: n.cfg.ImageCredentialProviderBinDir, Accounts: n.cluster.accounts, Log: n.log, Registerer: n.registry,
		}
		cfg.Providers, err = credentials.LoadProviders(plugins)
		if err != nil {
			return nil, err
		}
	}
	return credentials.New(cfg), nil
}

func (n *runtimeParts) newCollector() *gc.Collector {
	return gc.New(gc.Config{
		Runtime: imageService{n.client, n.nodeImages.Invalidate}, Disk: n.imageDisk, WantedImages: n.wantedImages, DescribeUsage: n.diskUsage, ImagesListed: n.pullRecords.Prune,
		Policy: gc.Policy{
			HighThresholdPercent: n.cfg.ImageGCHighThreshold, LowThresholdPercent: n.cfg.ImageGCLowThreshold,
			MinAge: n.cfg.ImageMinimumGCAge, MaxAge: n.cfg.ImageMaximumGCAge, MinFree: minFreeBytes,
		},
		Recorder: n.recorder, Log: n.log, Registerer: n.registry,
	})
}

var errNoImageDisk = errors.New("the container runtime does not say where its images are")

// imageDisk returns the file system of the runtime's images.
func (n *runtimeParts) imageDisk(ctx context.Context) (gc.Disk, error) {
	found, _, err := n.client.ImageFsInfo(ctx)
	if err != nil {
		return gc.Disk{}, err
	}
	if len(found) == 0 {
		return gc.Disk{}, errNoImageDisk
	}
	d := gc.Disk{Mountpoint: found[0].Mountpoint}
	var fs unix.Statfs_t
	if err := unix.Statfs(d.Mountpoint, &fs); err != nil {
		return d, fmt.Errorf("read the usage of the image file system, %s: %w", d.Mountpoint, err)
	}
	unit := uint64(fs.Frsize)
	d.Capacity, d.Available = fs.Blocks*unit, fs.Bavail*unit
	return d, nil
}

// wantedImages returns the images that a pod or the image directory refers to. It returns false
// until every source is ready.
func (n *runtimeParts) wantedImages() ([]string, bool) {
	all := n.archives.Refs()
	if n.network != nil {
		all = append(all, n.options.SandboxImage)
	}
	for _, p := range n.status.Pods() {
		for c := range pod.ContainerSpecs(&p.Spec) {
			all = append(all, c.Image)
		}
		for i := range p.Spec.Volumes {
			if v := p.Spec.Volumes[i].Image; v != nil {
				all = append(all, v.Reference)
			}
		}
	}
	return all, n.podConfig.SeenAll()
}

// diskUsage summarizes the usage of the images' file system, as far as podd can determine it at
// a bounded cost.
func (n *runtimeParts) diskUsage(ctx context.Context) string {
	disk, err := n.imageDisk(ctx)
	if err != nil {
		return ""
	}
	found, _, err := n.imageFS(ctx)
	if err != nil {
		return ""
	}
	used, rest := int64(disk.Capacity-disk.Available), int64(0)
	parts := []string{fmt.Sprintf("unpacked images and containers' writable layers %s", bytesize.Format(int64(found[0].Used)))}
	rest = used - int64(found[0].Used)
	for _, d := range []struct{ what, dir string }{
		{"pods' volumes", n.dirs().Pods()},
		{"pods' logs", n.cfg.PodLogsDir},
	} {
		if !usage.SameFS(d.dir, disk.Mountpoint) {
			continue
		}
		size, complete := dirSize(ctx, d.dir)
		rest -= size
		more := ""
		if !complete {
			more = "at least "
		}
		parts = append(parts, fmt.Sprintf("%s %s%s", d.what, more, bytesize.Format(size)))
	}
	parts = append(parts, fmt.Sprintf("everything else on this disk %s", bytesize.Format(max(rest, 0))))
	return "Of the used space: " + strings.Join(parts, ", ") + "."
}

// archives is the image directory, if the runtime can import archives.
type archives struct {
	*archive.Dir
	imports bool // whether this runtime can import archives
}

func (a archives) WaitBriefly(ctx context.Context) error {
	if !a.imports {
		return nil // this runtime cannot import
	}
	return a.Dir.WaitBriefly(ctx)
}

func (a archives) Importing() bool { return a.imports && a.Dir.Importing() }
