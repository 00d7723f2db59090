// Command mkimages writes podd's own images as archives that the image directory
// takes (docker-archive with the OCI media types' content: what every importer
// reads). No Dockerfile and no registry are involved: an image is one layer of
// files and a configuration. The same files give the same bytes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// architecture is that of the images.
var architecture string

func run() error {
	pause := flag.String("pause", "", "static pause binary")
	web := flag.String("web", "", "static web binary")
	busybox := flag.String("busybox", "", "static busybox binary of this processor; none for no image of it")
	flag.StringVar(&architecture, "arch", runtime.GOARCH, "processor of the binaries, in Go's words")
	out := flag.String("out", "build/images", "directory for the archives, or the file of those of upstream's tests")
	var suite suiteFiles
	flag.StringVar(&suite.base, "suite-base", "", "tar of a small Debian: makes the images of upstream's tests instead")
	flag.StringVar(&suite.agnhost, "agnhost", "", "upstream's static agnhost")
	flag.StringVar(&suite.nnp, "nnp", "", "static program that prints its effective user")
	flag.StringVar(&suite.hostpath, "hostpath", "", "static program that joins connections for the tests' drivers")
	var of programs
	flag.Var(&of, "program", "IMAGE=FILE: makes an image of a static program instead; may be repeated")
	packages := flag.String("debian", "", "directory with Debian's packages unpacked: makes the images of the examples instead")
	flag.Parse()
	if *packages != "" {
		return writeDebians(*packages, *out)
	}
	suite.pause = *pause
	if len(of) > 0 {
		return writeArchive(*out, of)
	}
	if suite.base != "" {
		images, err := suite.images()
		if err != nil {
			return err
		}
		return writeArchive(*out, images)
	}
	if *pause == "" || *web == "" {
		return errors.New("-pause and -web are both needed")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	images := []struct {
		name  string
		image func() (*image, error)
	}{
		{"pause", func() (*image, error) { return pauseImage(*pause) }},
		{"web", func() (*image, error) { return webImage(*web) }},
		{"busybox", func() (*image, error) { return busyboxImage(*busybox) }},
	}
	if *busybox == "" {
		images = images[:2]
	}
	for _, i := range images {
		img, err := i.image()
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		if err := img.write(filepath.Join(*out, i.name+".tar"), "localhost/podd/"+i.name+":1"); err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mkimages:", err)
		os.Exit(1)
	}
}
