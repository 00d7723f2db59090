package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"podd/test/cluster/registry"
	"podd/test/cluster/suiteimages"
	"podd/test/e2e/testnode"
)

// importSuite gives the node the images of upstream's tests. They are pinned: no agent
// removes them when space is short, and nothing could bring them back.
func importSuite(ctx context.Context, node *testnode.Node, archive string) error {
	if err := node.Containerd.Import(ctx, archive); err != nil {
		return err
	}
	images := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(node.Bundle.Bin, "ctr"),
			append([]string{"--address", node.Containerd.Socket(), "--namespace", "k8s.io", "images"}, args...)...)
		var complaint strings.Builder
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("ctr images %s: %w: %s", strings.Join(args, " "), err, complaint.String())
		}
		return string(out), nil
	}
	if _, err := images(append([]string{"tag", testnode.ImagePause}, suiteimages.Pauses...)...); err != nil {
		return err
	}
	names, err := images("list", "--quiet")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(names) {
		if _, err := images("label", name, "io.cri-containerd.pinned=pinned"); err != nil {
			return err
		}
	}
	return nil
}

// serveSuite has the node's runtime pull upstream's images from here, as long as this process
// runs: those that tests pull whatever the node has.
func serveSuite(node *testnode.Node, archive string) error {
	dir, err := os.MkdirTemp(node.Dir, "pulled-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	agnhost := suiteimages.Agnhost // a test pulls it although the node has it
	image, err := testnode.ReadNamed(dir, archive, agnhost)
	if err != nil {
		return err
	}
	images, err := registry.New(map[string]v1.Image{strings.TrimPrefix(agnhost, registry.Host+"/"): image})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve upstream's images: %w", err)
	}
	go func() { _ = http.Serve(listener, images) }()
	return registry.Mirror(node.ConfigDir(), listener.Addr().String())
}

// keepLogs copies the logs of a cluster's programs out of the test node, which is removed.
func keepLogs(dir, out string) error {
	var errs []error
	for _, name := range []string{"podd/podd.log", "kubelet/kubelet.log", "apiserver/apiserver.log", "apiserver/kube-controller-manager.log", "apiserver/kube-scheduler.log", "run/containerd.log"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err, os.WriteFile(filepath.Join(out, filepath.Base(name)), text, 0o600))
	}
	return errors.Join(errs...)
}
