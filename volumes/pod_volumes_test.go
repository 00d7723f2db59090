package volumes

// count counts the known pods of which something is true. The lock is held, or nothing runs.
func (m *Mounter) count(is func(*podVolumes) bool) (n int) {
	for _, p := range m.pods {
		if is(p) {
			n++
		}
	}
	return n
}

func hasLive(p *podVolumes) bool  { return p.live != nil }
func hasSetUp(p *podVolumes) bool { return p.setUp != nil }

// forgetReady is what a restart of podd forgets.
func (m *Mounter) forgetReady() {
	for uid := range m.pods {
		m.markNotReadyLocked(uid)
	}
}
