package main

import "testing"

func TestWhatAKubeletSaysOfAPodThatHasEnded(t *testing.T) {
	for message, want := range map[string]bool{
		`MountVolume.SetUp failed for volume "v" : object "default"/"cm" not registered`:                                     true,
		`MountVolume.SetUp failed for volume "v" : configmap "cm" not found`:                                                 false,
		`MountVolume.SetUp failed for volume "v" : [object "default"/"cm" not registered, configmap "other" not found]`:      false,
		`MountVolume.SetUp failed for volume "v" : references non-existent secret key: : object "a"/"b" not registered, yes`: false,
	} {
		if got := unregistered.MatchString(message); got != want {
			t.Errorf("%s: set aside %v, want %v", message, got, want)
		}
	}
}

func TestNoLimitIsNoLimit(t *testing.T) {
	for value, want := range map[string]int{unlimited: 0, "64Mi": 1} {
		r := &Record{Pods: map[string][]*Series{"a": {{Final: map[string]string{memoryLimit: value}}}}}
		r.normalise(func(s string) string { return s })
		if got := len(r.Pods["a"][0].Final); got != want {
			t.Errorf("of a limit of %s %d fields are compared, want %d", value, got, want)
		}
	}
}
