package csi

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/checkpoint"
	"podd/internal/pod"
)

// record is the checkpoint of a volume, in a file of upstream's name. The first keys are
// upstream's.
type record struct {
	SpecVolID           string `json:"specVolID,omitempty"`
	VolumeHandle        string `json:"volumeHandle"`
	DriverName          string `json:"driverName"`
	NodeName            string `json:"nodeName,omitempty"`
	AttachmentID        string `json:"attachmentID,omitempty"`
	VolumeLifecycleMode string `json:"volumeLifecycleMode,omitempty"`

	// Attached says that the cluster attaches the volume to this node.
	Attached bool `json:"podd/attached,omitempty"`
	// Block says that volumeMode is Block.
	Block bool `json:"podd/block,omitempty"`
	// State is the driver's progress, during the boot with the ID Boot.
	State state  `json:"podd/state,omitempty"`
	Boot  string `json:"podd/boot,omitempty"`
	// Capacity is the volume's size after its last expansion, in bytes.
	Capacity int64 `json:"podd/capacity,omitempty"`
	// SELinuxLabel is the label of the mount. The key is upstream's.
	SELinuxLabel string `json:"seLinuxMountContext,omitempty"`
}

// state is a driver's progress with staging or publishing a volume.
type state string

const (
	// stateIdle: the driver was not called yet, or has rejected the call (see isFinalError).
	stateIdle state = "idle"
	// stateBegun: the driver was called, and may have succeeded.
	stateBegun state = "begun"
	// stateDone: the call has succeeded.
	stateDone state = "done"
)

const recordFile = "vol_data.json"

func recordIn(dir string) checkpoint.File[record] {
	return checkpoint.File[record]{Path: filepath.Join(dir, recordFile), Format: checkpoint.Format{Codec: checkpoint.JSONLine, Mode: 0o640, DirMode: 0o750}}
}

// readRecord reads the record in a directory; the error is fs.ErrNotExist if there is
// none.
func readRecord(dir string) (*record, error) {
	f := recordIn(dir)
	r, err := f.Read()
	_, unread := errors.AsType[*fs.PathError](err)
	switch {
	case unread:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s does not say which volume it was: %w; unmount what is there by hand and remove it", f.Path, err)
	}
	if err := checkName(r.DriverName); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return &r, nil
}

func (r *record) write(dir string) error { return recordIn(dir).Write(*r) }

// removeRecord removes a record and its directory, which must then be empty.
func removeRecord(dir string) error {
	if err := recordIn(dir).Remove(); err != nil {
		return err
	}
	return removeEmpty(dir)
}

// removeEmpty removes a file or an empty directory that is not a mount point. It succeeds
// if there is none.
func removeEmpty(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// newRecord returns a volume's initial record.
func newRecord(v *pod.CSIVolume, node string) *record {
	r := &record{SpecVolID: v.Name, DriverName: v.Driver(), NodeName: node, Block: v.Block()}
	if v.Inline != nil {
		r.VolumeLifecycleMode = string(storagev1.VolumeLifecycleEphemeral)
		r.VolumeHandle = hashed("csi-", string(v.Pod.UID)+v.Name)
	} else {
		r.VolumeLifecycleMode = string(storagev1.VolumeLifecyclePersistent)
		r.VolumeHandle = v.Persistent.Spec.CSI.VolumeHandle
	}
	r.AttachmentID = hashed("csi-", r.VolumeHandle+r.DriverName+node)
	return r
}

// persistent says whether the volume outlives its pod, and may be staged. For such a
// volume, a kubelet's record has no lifecycle mode.
func (r *record) persistent() bool {
	return r.VolumeLifecycleMode != string(storagev1.VolumeLifecycleEphemeral)
}

// key identifies the volume.
func (r *record) key() string { return r.DriverName + "^" + r.VolumeHandle }

func hashed(prefix, text string) string {
	return fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(text)))
}

// paths are the paths of a volume, the same as upstream's.
type paths struct {
	// target is where the volume is published; dir has the record of that.
	target, dir string
	// staging is where the volume is staged; stagingRecordDir has the record of that.
	staging, stagingRecordDir string
}

func pathsOf(root, dir string, r *record) paths {
	plugin := filepath.Join(root, "plugins", pluginName)
	if !r.Block {
		staged := filepath.Join(plugin, r.DriverName, hashed("", r.VolumeHandle))
		return paths{target: filepath.Join(dir, "mount"), dir: dir, staging: filepath.Join(staged, "globalmount"), stagingRecordDir: staged}
	}
	devices := filepath.Join(plugin, "volumeDevices")
	return paths{
		target: filepath.Join(devices, "publish", r.SpecVolID, string(uidOf(dir))), dir: dir,
		staging: filepath.Join(devices, "staging", r.SpecVolID), stagingRecordDir: filepath.Join(devices, r.SpecVolID, "data"),
	}
}

// uidOf returns the pod that a volume's directory belongs to:
// <pods>/<uid>/volumes/<plugin>/<name>.
func uidOf(dir string) pod.UID {
	return pod.UID(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir)))))
}

// otherUsers returns the directories of all pods' volumes with the same CSI volume, except
// one.
func (v *Volumes) otherUsers(r *record, except string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(v.root, "pods", "*", "volumes", "kubernetes.io~csi", "*", recordFile))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range files {
		dir := filepath.Dir(file)
		if dir == except {
			continue
		}
		other, err := readRecord(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil { // it may be a user
			return nil, err
		}
		if other.key() == r.key() && other.Block == r.Block {
			all = append(all, dir)
		}
	}
	return all, nil
}

// bootID identifies this boot, because mounts do not survive a reboot.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}
