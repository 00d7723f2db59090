package cri

// KnownLogs is of how many containers the links are known.
func (c *Client) KnownLogs() int {
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	return len(c.links.known)
}
