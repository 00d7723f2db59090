package cri

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/atomicfile"
	"podd/internal/pod"
)

const (
	// maxKept is how many bytes podd keeps of a container's hook and ports in its
	// annotations. Every list of the runtime's carries them, for every container,
	// dead ones too; a manifest may have megabytes.
	maxKept = 8 << 10
	// maxKeptFile bounds what is read back; a manifest is not larger.
	maxKeptFile = 16 << 20
	keptSuffix  = ".kept"
)

// kept is what of a container's spec its end needs when its manifest is gone.
type kept struct {
	PreStop *v1.LifecycleHandler `json:"preStop,omitempty"`
	Ports   []v1.ContainerPort   `json:"ports,omitempty"`
}

// keep writes it into the annotations as the kubelet does, or, where it is too
// long for them, into a file in the pod's directory that an annotation names.
func (c *Client) keep(p *v1.Pod, ctr *v1.Container, annotations map[string]string) error {
	var what kept
	if ctr.Lifecycle != nil {
		what.PreStop = ctr.Lifecycle.PreStop
	}
	what.Ports = ctr.Ports
	text := map[string]string{}
	size := 0
	for key, value := range map[string]any{annotationPreStop: what.PreStop, annotationPorts: what.Ports} {
		raw, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("keep the container's preStop hook: %w", err)
		}
		if string(raw) != "null" {
			text[key] = string(raw)
			size += len(raw)
		}
	}
	if size <= maxKept {
		for key, value := range text {
			annotations[key] = value
		}
		return nil
	}
	if what.PreStop == nil {
		return nil // only a hook needs the ports
	}
	raw, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("keep the container's preStop hook: %w", err)
	}
	sum := sha256.Sum256(raw)
	name := hex.EncodeToString(sum[:8]) + keptSuffix
	dir := c.containerDir(p.UID, ctr.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("make the container's directory: %w", err)
	}
	// A hook's command may hold a password: for root's eyes only.
	if err := atomicfile.Write(filepath.Join(dir, name), raw, 0o600); err != nil {
		return fmt.Errorf("keep the container's preStop hook: %w", err)
	}
	annotations[pod.AnnotationKept] = name
	return nil
}

func (c *Client) containerDir(uid pod.UID, name string) string {
	return filepath.Join(c.opts.RootDir, "pods", string(uid), "containers", name)
}

// keptSpec is what keep kept, and whether it is a sidecar; nil for nothing that
// matters to the end of a pod whose manifest is gone.
func (c *Client) keptSpec(uid pod.UID, name string, annotations map[string]string) *v1.Container {
	out := &v1.Container{Name: name}
	what := c.readKept(uid, name, annotations)
	if what.PreStop != nil {
		out.Lifecycle, out.Ports = &v1.Lifecycle{PreStop: what.PreStop}, what.Ports
	}
	if annotations[pod.AnnotationSidecar] == "true" {
		always := v1.ContainerRestartPolicyAlways
		out.RestartPolicy, out.Ports = &always, what.Ports
	}
	if out.Lifecycle == nil && out.RestartPolicy == nil {
		return nil
	}
	return out
}

// readKept reads back what can be read: a hook that names a port which cannot
// fails, and says so.
func (c *Client) readKept(uid pod.UID, name string, annotations map[string]string) (what kept) {
	file := annotations[pod.AnnotationKept]
	if file == "" {
		if raw := annotations[annotationPreStop]; raw != "" && json.Unmarshal([]byte(raw), &what.PreStop) != nil {
			what.PreStop = nil
		}
		if raw := annotations[annotationPorts]; raw != "" && json.Unmarshal([]byte(raw), &what.Ports) != nil {
			what.Ports = nil
		}
		return what
	}
	err := errors.New("its annotation names no file of podd's")
	if stem, ok := strings.CutSuffix(file, keptSuffix); ok && stem != "" && filepath.Base(file) == file {
		err = c.readKeptFile(filepath.Join(c.containerDir(uid, name), file), &what)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.log.Warn("the preStop hook of a container cannot be read back: it is not run if the pod's manifest is gone", "uid", uid, "container", name, "error", err)
	}
	return what
}

func (c *Client) readKeptFile(path string, what *kept) error {
	raw, err := c.readTail(path, maxKeptFile)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, what)
}
