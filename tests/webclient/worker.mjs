// In a worker, which has no localStorage: is a state that was lost noticed?
import { Device, IndexedDbStore } from '/webclient/lib/index.js'

const limits = {
  epsilonPerReport: 4,
  deltaPerReport: 0,
  epsilonPerPeriod: 8,
  deltaPerPeriod: 0,
  periodS: 86400,
}
const status = () =>
  new Device({ server: 'https://gateway.example', limits, store: new IndexedDbStore() }).status()
const { what } = await status()
await new Promise((resolve) => (indexedDB.deleteDatabase('blendstream').onsuccess = resolve))
postMessage([what, (await status()).what])
