package csi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"

	"podd/internal/atomicfile"
	"podd/internal/pod"
)

// record is what is on disk of a volume, in a file of upstream's name. The first
// keys are upstream's.
type record struct {
	SpecVolID           string `json:"specVolID,omitempty"`
	VolumeHandle        string `json:"volumeHandle"`
	DriverName          string `json:"driverName"`
	NodeName            string `json:"nodeName,omitempty"`
	AttachmentID        string `json:"attachmentID,omitempty"`
	VolumeLifecycleMode string `json:"volumeLifecycleMode,omitempty"`

	// Block says that it is a device.
	Block bool `json:"podd/block,omitempty"`
	// State is how far its driver got, in the boot of that ID.
	State state  `json:"podd/state,omitempty"`
	Boot  string `json:"podd/boot,omitempty"`
	// Capacity is what the volume was last expanded to, in bytes.
	Capacity int64 `json:"podd/capacity,omitempty"`
}

// state is how far a driver got with a volume.
type state string

const (
	// idle: the driver was not asked yet, or has refused for good.
	idle state = "idle"
	// begun: it was asked, and may have done it.
	begun state = "begun"
	// done: it said that it did.
	done state = "done"
)

const recordFile = "vol_data.json"

// readRecord reads the record in a directory; fs.ErrNotExist where there is none.
func readRecord(dir string) (*record, error) {
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s does not say which volume it was: %w; unmount what is there by hand and remove it", filepath.Join(dir, recordFile), err)
	}
	if err := checkName(r.DriverName); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, recordFile), err)
	}
	return r, nil
}

func (r *record) write(dir string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, recordFile), append(content, '\n'), 0o640)
}

// remove removes a record, and its directory if nothing else is in it.
func removeRecord(dir string) error {
	if err := os.Remove(filepath.Join(dir, recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return removeEmpty(dir)
}

// removeEmpty removes a file system's entry that holds nothing: neither files, nor a
// mount. It is success where there is none.
func removeEmpty(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// recordOf is a volume's record before anything was done.
func recordOf(v *pod.CSIVolume, node string) *record {
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

// persistent says that the volume lives beyond its pod, and may be staged.
func (r *record) persistent() bool {
	return r.VolumeLifecycleMode == string(storagev1.VolumeLifecyclePersistent)
}

// key tells volumes apart.
func (r *record) key() string { return r.DriverName + "^" + r.VolumeHandle }

func hashed(prefix, text string) string {
	return fmt.Sprintf("%s%x", prefix, sha256.Sum256([]byte(text)))
}

// places are where a volume is, as upstream has it.
type places struct {
	// target is where it is published, and dir where that is recorded.
	target, dir string
	// staging is where it is staged, and staged where that is recorded.
	staging, staged string
}

func placesOf(root, dir string, r *record) places {
	plugin := filepath.Join(root, "plugins", pluginName)
	if !r.Block {
		staged := filepath.Join(plugin, r.DriverName, hashed("", r.VolumeHandle))
		return places{target: filepath.Join(dir, "mount"), dir: dir, staging: filepath.Join(staged, "globalmount"), staged: staged}
	}
	devices := filepath.Join(plugin, "volumeDevices")
	return places{
		target: filepath.Join(devices, "publish", r.SpecVolID, string(uidOf(dir))), dir: dir,
		staging: filepath.Join(devices, "staging", r.SpecVolID), staged: filepath.Join(devices, r.SpecVolID, "data"),
	}
}

// uidOf is the pod with the volume's directory: <pods>/<uid>/volumes/<plugin>/<name>.
func uidOf(dir string) pod.UID {
	return pod.UID(filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(dir)))))
}

// users are the other directories of pods' volumes that have the same volume.
func (v *Volumes) users(r *record, but string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(v.root, "pods", "*", "volumes", "kubernetes.io~csi", "*", recordFile))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range files {
		dir := filepath.Dir(file)
		if dir == but {
			continue
		}
		other, err := readRecord(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil { // it may be one
			return nil, err
		}
		if other.key() == r.key() && other.Block == r.Block {
			all = append(all, dir)
		}
	}
	return all, nil
}

// bootID tells this boot from others: mounts do not outlive it.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(id))
}
