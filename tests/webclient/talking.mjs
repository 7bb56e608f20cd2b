// Plays one conversation of conversations.json; also in a browser, so it imports nothing of Node.

/** Every throw is the same fraction of its bound. */
class FractionDice {
  constructor([n, d]) {
    this.n = BigInt(n)
    this.d = BigInt(d)
  }
  below(bound) {
    return (bound * this.n) / this.d
  }
}

/** epsilon_per_report → epsilonPerReport, for all keys. */
export const camel = (object) =>
  Object.fromEntries(
    Object.entries(object).map(([key, value]) => [
      key.replace(/_(.)/g, (_, letter) => letter.toUpperCase()),
      value,
    ]),
  )

/** The same with its keys in order. */
const sorted = (value) =>
  Array.isArray(value)
    ? value.map(sorted)
    : value && typeof value === 'object'
      ? Object.fromEntries(
          Object.keys(value)
            .sort()
            .map((key) => [key, sorted(value[key])]),
        )
      : value

/** Plays it with this client and store; throws where the client says or returns something else.
 * `lose` removes the store's state, as a browser may. */
export async function play(vector, Device, makeStore, lose) {
  let nowS = 0
  let exchanges = []
  let { dice, limits } = vector
  let optIn = vector.opt_in ? camel(vector.opt_in) : undefined
  const same = (found, expected, what) => {
    const [a, b] = [JSON.stringify(found), JSON.stringify(expected)]
    if (a !== b) throw new Error(`${vector.name}: ${what} must be ${b}, got ${a}`)
  }
  const fetch = async (address, { method = 'GET', headers = {}, body = null }) => {
    const { request, response } = exchanges.shift() ?? {}
    same(
      { method, path: address, headers, body },
      request && { ...request, path: 'https://gateway.example' + request.path },
      'request',
    )
    if (!response) throw new TypeError('the connection was dropped')
    const text = response.too_large
      ? ' '.repeat(vector.limits.max_head_list_bytes + 1)
      : response.body
    return new Response(text, { status: response.status, headers: response.headers })
  }
  const start = () => {
    const options = {
      server: 'https://gateway.example/',
      limits: camel(limits),
      store: makeStore(),
      fetch,
      optIn,
    }
    return new Device(options, { clock: () => nowS + 0.5, dice: new FractionDice(dice) })
  }
  let device = start()
  for (const step of vector.steps) {
    nowS = step.now_s ?? nowS
    exchanges = [...(step.exchanges ?? [])]
    if (step.do === 'restart') {
      optIn = step.opt_in ? camel(step.opt_in) : undefined
      ;({ dice = dice, limits = limits } = step)
      const store = makeStore()
      if (step.state === 'lost') await lose(store)
      if (step.state === 'damaged') {
        const { text } = await store.load()
        await store.commit(text, text.slice(0, -9), 0)
      }
      device = start()
    } else if (step.do === 'record') {
      same((await device.record(step.query, step.url)).code, step.outcome, 'record')
    } else if (step.do === 'forget') {
      same((await device.forget()).detail, 'forgotten', 'forget')
    } else if (step.do === 'sent') {
      const { code, document = { code } } = await device.sentLog()
      same(sorted(document), sorted(step.outcome), 'sent')
    } else if (step.do === 'status') {
      const found = await device.status()
      for (const [key, value] of Object.entries(camel(step.outcome))) same(found[key], value, key)
    } else {
      const found = await device.maybeReport({ atOnce: step.do === 'report now' })
      const { code, epoch, next_call_at_s, free_at_s } = step.outcome
      const where = `outcome (${found.detail}) at ${nowS}`
      same([found.code, found.freeAtS], [code, free_at_s], where)
      if (next_call_at_s !== undefined) same(found.nextCallAtS, next_call_at_s, where)
      if (epoch !== undefined) same(found.epoch, epoch, where)
      same(exchanges.length, 0, 'requests left')
    }
  }
  return device
}
