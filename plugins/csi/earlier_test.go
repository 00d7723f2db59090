package csi

import "testing"

// testdata/earlier has what podd 3e2131e has written: podd is upgraded while pods run.
func TestARecordOfAnEarlierPoddIsRead(t *testing.T) {
	got, err := readRecord("testdata/earlier")
	want := record{SpecVolID: "pv", VolumeHandle: "h", DriverName: "disk.example.com", NodeName: "n1", AttachmentID: "csi-1",
		VolumeLifecycleMode: "Persistent", Attached: true, Block: true, State: stateDone, Boot: "b1", Capacity: 1 << 30}
	if err != nil || *got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
