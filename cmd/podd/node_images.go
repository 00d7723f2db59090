package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"podd/images"
	"podd/internal/pod"
	"podd/logrotate"
)

const (
	// packagedImages is where a package puts archives that belong to podd.
	packagedImages = "/usr/lib/podd/images"
	// leastFree is how many bytes of a disk podd keeps free of images that nobody
	// uses, whatever the percentages say.
	leastFree = 1 << 30
)

// housekeeping is what keeps the node's disk in order; built with the images.
type housekeeping struct {
	keyring   *images.NodeKeyring
	collector *images.Collector
	rotator   *logrotate.Rotator
}

// run starts it; the runtime has answered.
func (h *housekeeping) run(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return ignoreCanceled(ctx, "image garbage collection", h.collector.Run(ctx)) })
	g.Go(func() error { return ignoreCanceled(ctx, "log rotation", h.rotator.Run(ctx)) })
}

// newImages builds the image directory, the pulls with their credentials, and
// what removes images and rotates logs.
func (n *node) newImages(waker images.Waker) error {
	importer, err := images.DialContainerd(strings.TrimPrefix(n.client.Endpoint(), "unix://"))
	if err != nil {
		return err
	}
	n.archives = n.newArchives(importer)
	if n.keep.keyring, err = n.newKeyring(); err != nil {
		return err
	}
	n.keep.collector = n.newCollector()
	n.keep.rotator = n.newRotator()
	n.images = images.NewPuller(images.PullConfig{
		Runtime: archivesFirst{n.client, n}, Waker: waker, Recorder: n.recorder, Keyring: n.keep.keyring, Log: n.log, Registerer: n.registry,
		MaxParallel: n.cfg.ParallelImagePulls, Overtake: n.cfg.LongPullsOvertaken, QPS: float64(n.cfg.RegistryPullQPS), Burst: n.cfg.RegistryBurst,
		Progress: importer.Receiving, DiskFull: n.keep.collector.Soon,
	})
	return nil
}

// newArchives imports by containerd's own API, on the same socket as CRI. The connection is
// made at the first import and lives as long as podd.
func (n *node) newArchives(importer images.Importer) *images.ImportDir {
	dir := n.own.imageDir
	if dir == "" {
		dir = filepath.Join(n.cfg.RootDir, "images")
	}
	tell, log := importTold(os.Stderr, n.log)
	return images.NewImportDir(images.ImportConfig{
		Dir: dir, Extra: []string{packagedImages}, StateFile: filepath.Join(n.cfg.RootDir, "imported.json"),
		Importer: importer,
		Images:   n.client, Log: log, Registerer: n.registry, Progress: tell,
		Imported: func(refs []string) {
			n.images.Imported(refs)
			select {
			case n.imported <- struct{}{}: // capacity 1
			default:
			}
		},
	})
}

// newKeyring reads the configuration of credential provider plugins, if there is
// one. Secrets are not wired yet: those that a pod names count as missing.
func (n *node) newKeyring() (*images.NodeKeyring, error) {
	cfg := images.KeyringConfig{RootDir: n.cfg.RootDir, Recorder: n.recorder, Log: n.log}
	var err error
	if cfg.WorkDir, err = os.Getwd(); err != nil {
		n.log.Info("no registry credentials are looked for in the working directory", "error", err)
	}
	if cfg.Home, err = os.UserHomeDir(); err != nil {
		n.log.Debug("no registry credentials are looked for in a home directory", "error", err)
	}
	if n.cfg.ImageCredentialProviderConfig != "" {
		cfg.Providers, err = images.LoadProviders(images.ProvidersConfig{
			Config: n.cfg.ImageCredentialProviderConfig, BinDir: n.cfg.ImageCredentialProviderBinDir, Log: n.log, Registerer: n.registry,
		})
		if err != nil {
			return nil, err
		}
	}
	return images.NewKeyring(cfg), nil
}

func (n *node) newCollector() *images.Collector {
	return images.NewCollector(images.GCConfig{
		Runtime: n.client, Disk: n.imageDisk, Wanted: n.wantedImages, Usage: n.diskUsage,
		Policy: images.GCPolicy{
			High: n.cfg.ImageGCHighThreshold, Low: n.cfg.ImageGCLowThreshold,
			MinAge: n.cfg.ImageMinimumGCAge, MaxAge: n.cfg.ImageMaximumGCAge, MinFree: leastFree,
		},
		Recorder: n.recorder, Log: n.log, Registerer: n.registry,
	})
}

// imageDisk is the file system of the runtime's images.
func (n *node) imageDisk(ctx context.Context) (images.Disk, error) {
	found, _, err := n.client.ImageFsInfo(ctx)
	if err != nil {
		return images.Disk{}, err
	}
	if len(found) == 0 {
		return images.Disk{}, fmt.Errorf("the container runtime does not say where its images are")
	}
	d := images.Disk{Mountpoint: found[0].Mountpoint}
	var fs unix.Statfs_t
	if err := unix.Statfs(d.Mountpoint, &fs); err != nil {
		return d, fmt.Errorf("look at the file system of images, %s: %w", d.Mountpoint, err)
	}
	unit := uint64(fs.Frsize)
	d.Capacity, d.Available = fs.Blocks*unit, fs.Bavail*unit
	return d, nil
}

// wantedImages are those that a pod or the image directory names.
func (n *node) wantedImages() ([]string, bool) {
	all := n.archives.Refs()
	if n.network != nil {
		all = append(all, n.own.sandboxImage)
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
	return all, n.config.SeenAll()
}

// diskUsage says who has the space of the images' file system, as far as that
// can be told at a bounded cost.
func (n *node) diskUsage(ctx context.Context) string {
	disk, err := n.imageDisk(ctx)
	if err != nil {
		return ""
	}
	found, _, err := n.client.ImageFsInfo(ctx)
	if err != nil || len(found) == 0 {
		return ""
	}
	used, rest := int64(disk.Capacity-disk.Available), int64(0)
	parts := []string{fmt.Sprintf("unpacked images and containers' own files %s", images.Size(int64(found[0].Used)))}
	rest = used - int64(found[0].Used)
	for _, d := range []struct{ what, dir string }{
		{"pods' volumes", filepath.Join(n.cfg.RootDir, "pods")},
		{"pods' logs", n.cfg.PodLogsDir},
	} {
		if !sameDisk(d.dir, disk.Mountpoint) {
			continue
		}
		size, complete := sizeOf(ctx, d.dir)
		rest -= size
		more := ""
		if !complete {
			more = "at least "
		}
		parts = append(parts, fmt.Sprintf("%s %s%s", d.what, more, images.Size(size)))
	}
	parts = append(parts, fmt.Sprintf("all else on this disk %s", images.Size(max(rest, 0))))
	return "Of the used space: " + strings.Join(parts, ", ") + "."
}

// archivesPatience bounds how long one large archive may hold up the pulls of
// images that are not in it.
const archivesPatience = 10 * time.Second

// waitArchives waits for the archives that are at hand; its error is ctx's.
func waitArchives(ctx context.Context, archives *images.ImportDir) error {
	patience, cancel := context.WithTimeout(ctx, archivesPatience)
	defer cancel()
	_ = archives.Wait(patience)
	return ctx.Err()
}

// archivesFirst lets a pull wait for the archives that are being imported: the
// image may be among them, and on a first start it usually is. An image that
// came from an archive and was removed since comes from there again. What an
// archive holds is never asked of a registry, also not by policy Always: it is
// there so that no registry is needed.
type archivesFirst struct {
	images.Runtime
	n *node
}

func (a archivesFirst) ImageStatus(ctx context.Context, ref string) (*pod.Image, error) {
	image, err := a.Runtime.ImageStatus(ctx, ref)
	if err == nil && image == nil {
		a.n.archives.Missing(ref)
	}
	return image, err
}

func (a archivesFirst) PullImage(ctx context.Context, ref string, auth *pod.RegistryAuth, annotations map[string]string) (string, error) {
	if a.n.imports {
		if err := waitArchives(ctx, a.n.archives); err != nil {
			return "", err
		}
	}
	if a.n.archives.Holds(ref) {
		if image, err := a.Runtime.ImageStatus(ctx, ref); err == nil && image != nil {
			return image.ID, nil
		}
	}
	return a.Runtime.PullImage(ctx, ref, auth, annotations)
}
