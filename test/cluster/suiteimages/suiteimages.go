// Package suiteimages has the names of the images of upstream's end-to-end tests, as the pinned
// release of Kubernetes has them (k8s.io/kubernetes/test/utils/image).
//
// hack/mkimages builds images under these names, and clusters serve them to nodes: a move to
// another release needs no change here.
package suiteimages

import (
	"strings"

	"k8s.io/kubernetes/test/utils/image"
)

// The images that podd has a substitute for, with registry and tag.
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

// Programs are the images of one static program each that certification needs besides, by the
// program.
var Programs = map[string]string{"sample-apiserver": image.GetE2EImage(image.APIServer), "etcd": image.GetE2EImage(image.Etcd)}

// Pauses are the names of the image that every node has. Some tests name a release by hand.
var Pauses = []string{image.GetPauseImageName(), "registry.k8s.io/pause:3.10"}

// Pulled are the images that tests pull, whatever the node has, or miss when another test has
// removed them: two names of one image go together.
var Pulled = []string{Agnhost, AgnhostPrev, BusyBox, DNSTesting, Nginx, NginxNew, NoNewPrivs, NonRoot}

// newest returns the name with this beginning that is last in the order of strings; empty for
// none. Upstream finds some of its images in manifests, and numbers them as they come.
func newest(prefix string) (name string) {
	for _, c := range image.GetImageConfigs() {
		if n := c.GetE2EImage(); strings.HasPrefix(n, prefix) {
			name = max(name, n)
		}
	}
	return name
}
