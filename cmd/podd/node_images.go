package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"podd/images"
)

// packagedImages is where a package puts archives that belong to podd.
const packagedImages = "/usr/lib/podd/images"

// newImages builds the image directory and the pulls.
func (n *node) newImages(waker images.Waker) error {
	var err error
	if n.archives, err = n.newArchives(); err != nil {
		return err
	}
	n.images = images.NewPuller(images.PullConfig{
		Runtime: archivesFirst{n.client, n}, Waker: waker, Recorder: n.recorder, Log: n.log, Registerer: n.registry,
		MaxParallel: n.cfg.ParallelImagePulls, QPS: float64(n.cfg.RegistryPullQPS), Burst: n.cfg.RegistryBurst,
	})
	return nil
}

// newArchives imports by containerd's own API, on the same socket as CRI. The connection is
// made at the first import and lives as long as podd.
func (n *node) newArchives() (*images.ImportDir, error) {
	importer, err := images.DialContainerd(strings.TrimPrefix(n.client.Endpoint(), "unix://"))
	if err != nil {
		return nil, err
	}
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
	}), nil
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
