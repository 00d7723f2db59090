package archive

// Close ends the connection.
func (c *Containerd) Close() error { return c.conn.Close() }
