package node

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"podd/cgroup"
	"podd/internal/atomicfile"
	"podd/internal/pod"
	"podd/volumes"
)

// instanceBytes is the length of an identity. It is long enough to be unique.
const instanceBytes = 8

// instanceIdentity is the ID of an instance, and the file that holds it.
type instanceIdentity struct{ id, file string }

// loadInstanceIdentity returns the ID of the instance that owns a root directory. The ID is
// made at the first start and survives restarts and reboots. Everything that the instance
// creates through a runtime carries the ID. If the root directory is lost, so is the ID:
// whatever the runtime still has then belongs to another instance.
func loadInstanceIdentity(rootDir string) (instanceIdentity, error) {
	file := filepath.Join(rootDir, "instance")
	for range 2 {
		text, err := os.ReadFile(file)
		if err == nil {
			id, err := parseInstance(file, string(text))
			return instanceIdentity{id, file}, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return instanceIdentity{}, fmt.Errorf("read podd's identity: %w", err)
		}
		if err := makeInstance(rootDir, file); err != nil && !errors.Is(err, fs.ErrExist) {
			return instanceIdentity{}, fmt.Errorf("make podd's identity: %w", err)
		}
	}
	return instanceIdentity{}, fmt.Errorf("read podd's identity: %s keeps disappearing", file)
}

func parseInstance(file, text string) (string, error) {
	id := strings.TrimSpace(text)
	if id == "" || len(id) > 64 || strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
	}) {
		return "", fmt.Errorf("%s does not contain an identity (letters, digits and dashes): write the one that this podd's pods carry in their annotation %s, or remove the file and podd makes a new one", file, pod.AnnotationInstance)
	}
	return id, nil
}

// makeInstance creates the file, unless another process has. It syncs the file to disk, once in
// a root directory's life: otherwise the runtime's records could outlive the ID.
func makeInstance(rootDir, file string) error {
	if err := os.MkdirAll(rootDir, 0o711); err != nil {
		return err
	}
	id := make([]byte, instanceBytes)
	_, _ = rand.Read(id) // never fails
	f, err := os.CreateTemp(rootDir, ".instance")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(hex.EncodeToString(id) + "\n")
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), file); err != nil {
		return err
	}
	dir, err := os.Open(rootDir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// checkAndRecordEndpoint returns an error if the endpoint has changed while pods still run on the
// runtime of the last start: they would run twice.
func (n *Node) checkAndRecordEndpoint() error {
	file := filepath.Join(n.cfg.RootDir, "endpoint")
	now := realSocket(n.conn.Endpoint())
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read which runtime the pods were made on: %w", err)
	}
	before := strings.TrimSpace(string(text))
	if before == now {
		return nil
	}
	if before != "" {
		running, err := n.runningPods()
		if err != nil {
			return fmt.Errorf("determine whether pods still run on the runtime of the last start, %s: %w", before, err)
		}
		if len(running) > 0 {
			return fmt.Errorf("%d pods still run on the container runtime of podd's last start, %s, and would run a second time on %s (the first has the UID %s): "+
				"go back to --container-runtime-endpoint=%s; to move them, start podd with that endpoint and no manifests, or use `podd runtime stop` where it is podd's own runtime, and then start podd with the new one",
				len(running), before, now, running[0], before)
		}
	}
	if err := atomicfile.Write(file, []byte(now+"\n"), 0o644); err != nil {
		return fmt.Errorf("record which runtime the pods are made on: %w", err)
	}
	return nil
}

// realSocket returns the endpoint with the symlinks in its socket's path resolved, as far as
// the path exists: /var/run is /run.
func realSocket(endpoint string) string {
	path := strings.TrimPrefix(endpoint, "unix://")
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return "unix://" + path
}

// runningPods returns podd's pods that have processes in their cgroups, whichever runtime and
// cgroup driver created the cgroups.
func (n *Node) runningPods() ([]pod.UID, error) {
	uids, err := volumes.Pods(n.cfg.RootDir)
	errs := []error{err}
	var running []pod.UID
	for _, uid := range uids {
		for _, driver := range []cgroup.Driver{cgroup.Cgroupfs, cgroup.Systemd} {
			busy, err := n.cgroupTree(driver).HasProcesses(uid)
			errs = append(errs, err)
			if busy {
				running = append(running, uid)
				break
			}
		}
	}
	return running, errors.Join(errs...)
}
