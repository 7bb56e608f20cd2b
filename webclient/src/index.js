export { Device } from './device.js'
export { PublishedResult } from './result.js'
export { IndexedDbStore, MemoryStore } from './stores.js'
