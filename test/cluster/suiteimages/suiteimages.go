// Package suiteimages has the names of the images of upstream's end-to-end tests, as the pinned
// release of Kubernetes has them (k8s.io/kubernetes/test/utils/image).
//
// hack/mkimages builds images under these names, and test clusters serve them to nodes. Another
// release of Kubernetes needs no change here.
package suiteimages

import (
	"strings"

	"k8s.io/kubernetes/test/utils/image"
)

// The images that hack/mkimages builds a substitute for, with registry and tag.
var (
	Agnhost     = image.GetE2EImage(image.Agnhost)
	AgnhostPrev = image.GetE2EImage(image.AgnhostPrev)
	BusyBox     = image.GetE2EImage(image.BusyBox)
	DNSTesting  = image.GetE2EImage(image.GlibcDnsTesting)
	Nautilus    = image.GetE2EImage(image.Nautilus)
	Nginx       = image.GetE2EImage(image.Nginx)
	NginxNew    = image.GetE2EImage(image.NginxNew)
	NoNewPrivs  = image.GetE2EImage(image.Nonewprivs)
	NonRoot     = image.GetE2EImage(image.NonRoot)
	// Hostpath is the CSI driver of the tests' manifests.
	Hostpath = newest("registry.k8s.io/sig-storage/hostpathplugin:")
)

// Programs maps programs to the other images that certification needs. Each has one static
// program.
var Programs = map[string]string{"sample-apiserver": image.GetE2EImage(image.APIServer), "etcd": image.GetE2EImage(image.Etcd)}

// Pauses are the names of the pause image, which every node has. Some tests hard-code a release.
var Pauses = []string{image.GetPauseImageName(), "registry.k8s.io/pause:3.10"}

// Pulled are the images that tests always pull, and those that may be missing because another
// test removed them: removing one name of an image removes its other names, too.
var Pulled = []string{Agnhost, AgnhostPrev, BusyBox, DNSTesting, Nginx, NginxNew, NoNewPrivs, NonRoot}

// newest returns the last name with this prefix in string order; empty for none. Upstream reads
// some of its images from manifests, and has no fixed key for them.
func newest(prefix string) (name string) {
	for _, c := range image.GetImageConfigs() {
		if n := c.GetE2EImage(); strings.HasPrefix(n, prefix) {
			name = max(name, n)
		}
	}
	return name
}
