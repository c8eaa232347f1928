// Package callers knows who may ask for payments (G12): the table of callers and
// their keys, which the command line changes (Registry) and the HTTP edge and the
// consumer read (Directory), and the signatures that commands on Kafka carry
// (Signatures).
//
// A key is "so_<id>_<secret>". The id is for look-up, the secret is 256 random
// bits, of which the table keeps the SHA-256. A slow hash (bcrypt) protects
// secrets that people choose, by making each guess dear; 256 random bits cannot be
// guessed at any price, and a slow hash would only let strangers use up the edge's
// processors with keys that are none.
package callers
